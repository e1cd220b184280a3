//! Small files that stand for more than memory holds are refused with a reason, before they fill it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::io::Write;

use common::{Folder, run};
use flate2::Compression;
use flate2::write::GzEncoder;

/// A gzipped file of a beginning and one part over and over; what is said of it.
fn refused(name: &str, start: &str, part: &str, count: usize) -> String {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(start.as_bytes()).unwrap();
    let parts = part.repeat(1000);
    for _ in 0..count / 1000 {
        packed.write_all(parts.as_bytes()).unwrap();
    }
    let folder = Folder::new(name);
    let file = folder.write(name, packed.finish().unwrap());
    let (status, output, errors) = run(&["replay", &file]);
    assert_eq!((status, output.as_str()), (2, ""), "{errors}");
    errors
}

#[test]
fn json_is_read_up_to_so_many_bytes_and_values() {
    let many = refused("many-bytes.json.gz", r#"{"ops":["#, "[],", 23_000_000);
    assert!(many.contains("has more than 67108864 bytes of JSON, unpacked; no more is read"), "{many}");
    for (name, part) in [("lists.json.gz", "[0],"), ("objects.json.gz", r#"{"":0},"#)] {
        let many = refused(name, r#"{"ops":["#, part, 5_001_000);
        assert!(many.contains("line 1 column ") && many.contains(": more than 10000000 values"), "{many}");
    }
    let comment = refused("comment.txt.gz", "# meta [", "0,", 10_001_000);
    assert!(comment.contains("line 1: line 1 column ") && comment.contains("more than 10000000 values"), "{comment}");
}

#[test]
fn traces_are_read_up_to_so_many_lines_and_steps() {
    for (name, line, count) in [("lines.txt.gz", "S 512 512\n", 10_001_000), ("steps.txt.gz", "o 5\n", 5_001_000)] {
        let many = refused(name, "", line, count);
        assert!(many.contains("has more than 10000000 steps; no more are read"), "{many}");
    }
}
