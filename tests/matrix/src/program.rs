//! Calling the compiled shapes: one program for each edition and form, and the tests of those that are tests.

use crate::form::{Edition, Form};
use crate::lints::folder;
use crate::shape::{Build, Shape};
use crate::toolchain::{Toolchain, output_of};
use shape_support::harness::FORM_VARIABLE;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

/// What calling one shape gave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Called {
    /// What its functions returned; none if it was not called.
    pub(crate) returned: Option<String>,
    pub(crate) problems: Vec<String>,
}

/// Calls the shapes, which have all been compiled in this edition and form; the results are by the shapes' names.
pub(crate) fn call(
    toolchain: &Toolchain,
    shapes: &[&Shape],
    edition: Edition,
    form: Form,
) -> Result<BTreeMap<String, Called>, String> {
    let mut called = BTreeMap::new();
    let (libraries, tests): (Vec<&Shape>, Vec<&Shape>) = shapes.iter().partition(|shape| shape.build == Build::Library);
    if !libraries.is_empty() {
        let output = call_libraries(toolchain, &libraries, edition, form)?;
        for line in output.lines() {
            let mut parts = line.splitn(3, '\t');
            if let (Some(name), Some(what), Some(text)) = (parts.next(), parts.next(), parts.next()) {
                let called: &mut Called = called.entry(name.to_owned()).or_default();
                match what {
                    "returned" => called.returned = Some(text.to_owned()),
                    _ => called.problems.push(text.to_owned()),
                }
            }
        }
    }
    for shape in tests {
        called.insert(shape.name.clone(), call_tests(toolchain, shape, edition, form)?);
    }
    Ok(called)
}

fn call_libraries(toolchain: &Toolchain, shapes: &[&Shape], edition: Edition, form: Form) -> Result<String, String> {
    let kind = match form {
        Form::Plain => "Plain",
        Form::Device => "Device",
        _ => "Current",
    };
    let mut source =
        format!("use shape_support::calls::{{Form, Shape, run}};\n\nfn main() {{\n    run(Form::{kind}, &[\n");
    for Shape { name, calls, .. } in shapes {
        let calls: Vec<_> = calls.iter().collect();
        let _ = writeln!(source, "Shape {{ name: {name:?}, exercise: {name}::exercise, expected: &{calls:?} }},");
    }
    source.push_str("    ]);\n}\n");
    let folder = folder(toolchain, edition, form);
    std::fs::write(folder.join("program.rs"), source).map_err(|error| format!("program.rs: {error}"))?;
    let mut command = Command::new(&toolchain.rustc);
    command.current_dir(&folder).args([
        "program.rs",
        "--edition",
        "2021",
        "-C",
        "debuginfo=0",
        "-C",
        "strip=debuginfo",
        "-L",
        ".",
    ]);
    command.args(toolchain.libraries());
    for Shape { name, .. } in shapes {
        command.args(["--extern", &format!("{name}=lib{name}.rlib")]);
    }
    output_of(&mut command)?;
    output_of(Command::new(folder.join("program")).current_dir(&folder))
}

fn call_tests(toolchain: &Toolchain, shape: &Shape, edition: Edition, form: Form) -> Result<Called, String> {
    let folder = folder(toolchain, edition, form);
    let mut command = Command::new(folder.join(&shape.name));
    let output = command
        .current_dir(&folder)
        .arg("--test-threads=1")
        .env(FORM_VARIABLE, form.word())
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Which tests ran, and how they ended.
    let returned = text.lines().filter(|line| line.starts_with("test ") && !line.starts_with("test result"));
    let returned = returned.collect::<Vec<_>>().join("\n");
    let problems = if output.status.success() { Vec::new() } else { vec![text] };
    Ok(Called { returned: Some(returned), problems })
}
