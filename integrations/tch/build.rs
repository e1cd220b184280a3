//! Compiles `shim/allocator.cpp` against the libtorch that torch-sys links.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=shim/allocator.cpp");
    for name in ["LIBTORCH_INCLUDE", "LIBTORCH_CXX11_ABI", "CUDA_HOME", "CUDA_PATH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    if env::var_os("CARGO_FEATURE_DOC_ONLY").is_some() {
        return;
    }
    // From torch-sys, which has `links = "tch"`.
    let Some(libraries) = env::var_os("DEP_TCH_LIBTORCH_LIB").map(PathBuf::from) else {
        fail("torch-sys does not say where libtorch is; this package builds on Linux and macOS only");
    };
    let torch = env::var_os("LIBTORCH_INCLUDE").map(PathBuf::from);
    let torch = torch.or_else(|| libraries.parent().map(Path::to_owned)).unwrap_or_default();
    let include = torch.join("include");
    if !include.join("c10").is_dir() {
        fail(&format!(
            "{} has none of libtorch's headers; set LIBTORCH_INCLUDE to the folder above them",
            include.display()
        ));
    }
    let mut build = cc::Build::new();
    build.cpp(true).pic(true).warnings(false).flag("-std=c++17").file("shim/allocator.cpp").include(include);
    // As torch-sys takes it: PyTorch's own packages have had the new strings since 2.6.
    let abi = env::var("LIBTORCH_CXX11_ABI").unwrap_or_else(|_| "1".to_owned());
    build.define("_GLIBCXX_USE_CXX11_ABI", abi.as_str());
    let has_cuda = libraries.join("libc10_cuda.so").exists();
    if has_cuda {
        build.define("MEMTRACK_TORCH_CUDA", None).include(cuda_headers(&torch));
    }
    build.compile("memtrack_torch_shim");
    println!("cargo:rustc-link-search=native={}", libraries.display());
    if has_cuda {
        println!("cargo:rustc-link-lib=c10_cuda");
        println!("cargo:rustc-link-lib=torch_cuda");
    }
    println!("cargo:rustc-link-lib=torch_cpu");
    println!("cargo:rustc-link-lib=c10");
}

/// The folder of CUDA's headers, which libtorch's own include: a toolkit's, or that of NVIDIA's Python packages beside PyTorch's.
fn cuda_headers(torch: &Path) -> PathBuf {
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let beside = torch.parent().map(|packages| packages.join("nvidia/cu13"));
    let candidates: Vec<PathBuf> =
        named.chain(beside).chain([PathBuf::from("/usr/local/cuda")]).map(|folder| folder.join("include")).collect();
    let is_whole =
        |folder: &&PathBuf| folder.join("cuda_runtime.h").exists() && folder.join("crt/host_config.h").exists();
    let Some(folder) = candidates.iter().find(is_whole) else {
        fail(&format!(
            "libtorch's headers need CUDA's, which are in none of {candidates:?}: set CUDA_HOME to a toolkit, or install the Python \
             packages nvidia-cuda-runtime and nvidia-cuda-crt of PyTorch's CUDA version beside torch"
        ));
    };
    folder.clone()
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    std::process::exit(1);
}
