//! Documents whose commands are run, so that what they show is what is printed.

use std::path::Path;

/// Runs every command of the document's `console` blocks, of which there are so many at least, and compares what it prints with what stands
/// there. With `MEMTRACK_BLESS=1` the document in `docs` is written anew; look at what changed.
pub(crate) fn assert_shows_what_is_printed(
    name: &str,
    document: &str,
    least_count: usize,
    run: impl Fn(&str) -> String,
) {
    let (mut shown, mut count) = (String::new(), 0);
    let mut inside = false;
    for line in document.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if inside => {
                if let Some(command) = line.strip_prefix("$ ") {
                    shown += &format!("{line}\n{}", run(command));
                    count += 1;
                }
                continue;
            }
            _ => {}
        }
        shown += &format!("{line}\n");
    }
    assert!(count >= least_count, "{count} commands");
    if std::env::var_os("MEMTRACK_BLESS").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name), &shown).unwrap();
        return;
    }
    for (shown, said) in shown.lines().zip(document.lines()) {
        assert_eq!(shown, said, "MEMTRACK_BLESS=1 writes the document anew");
    }
    assert_eq!(shown.len(), document.len());
}
