//! What the shapes are compiled with: clippy's driver, which is rustc with clippy's lints, and the libraries.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that a shape may name.
const CRATES: [&str; 5] = ["memtrack", "shape_support", "async_trait", "tokio", "tracing"];

/// Paths found once.
#[derive(Debug)]
pub(crate) struct Toolchain {
    pub(crate) driver: PathBuf,
    pub(crate) rustc: PathBuf,
    /// The arguments by which rustc finds the libraries.
    libraries: Vec<String>,
    /// Where the compiled shapes go.
    pub(crate) output: PathBuf,
}

impl Toolchain {
    /// Builds the libraries and finds everything.
    pub(crate) fn prepare() -> Result<Self, String> {
        let rustc = PathBuf::from(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let sysroot = output_of(Command::new(&rustc).args(["--print", "sysroot"]))?;
        let driver = Path::new(sysroot.trim()).join("bin/clippy-driver");
        if !driver.exists() {
            return Err(format!("{} is missing: run `rustup component add clippy`", driver.display()));
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let messages = output_of(
            Command::new(cargo)
                .args(["build", "--quiet", "--message-format=json", "--package", "memtrack-matrix", "--lib"])
                .current_dir(env!("CARGO_MANIFEST_DIR")),
        )?;
        let artifacts = artifacts(&messages);
        let support = artifacts.iter().find(|(name, _)| name == "shape_support").map(|(_, path)| path.clone());
        let directory = support.as_deref().and_then(Path::parent).ok_or("cargo did not build `shape_support`")?;
        let mut libraries = vec!["-L".to_owned(), format!("dependency={}", directory.join("deps").display())];
        for (name, path) in artifacts.iter().filter(|(name, _)| CRATES.contains(&name.as_str())) {
            libraries.extend(["--extern".to_owned(), format!("{name}={}", path.display())]);
        }
        let output = directory.join("shapes");
        Ok(Self { driver, rustc, libraries, output })
    }

    /// The arguments by which rustc finds the libraries.
    pub(crate) fn libraries(&self) -> &[String] {
        &self.libraries
    }
}

/// The libraries that cargo built: their names and files.
fn artifacts(messages: &str) -> Vec<(String, PathBuf)> {
    let mut artifacts = Vec::new();
    for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if message["reason"] != "compiler-artifact" || message["target"]["kind"][0] == "custom-build" {
            continue;
        }
        let Some(name) = message["target"]["name"].as_str() else { continue };
        let mut files = message["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        if let Some(file) = files.rfind(|file| file.ends_with(".rlib") || is_dynamic(file)) {
            artifacts.push((name.to_owned(), PathBuf::from(file)));
        }
    }
    artifacts
}

fn is_dynamic(file: &str) -> bool {
    file.ends_with(std::env::consts::DLL_SUFFIX)
}

/// Runs a command that must succeed.
pub(crate) fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
