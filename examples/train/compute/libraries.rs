//! Finding cuBLAS and nvrtc before cudarc does, because cudarc panics where one of them, or a function in it, is missing.

use std::error::Error as _;

use cudarc::driver;
use libloading::Library;

use crate::error::TrainError;

/// What cudarc calls for a handle on the default stream and for products.
const CUBLAS_FUNCTIONS: &[&str] =
    &["cublasCreate_v2", "cublasDestroy_v2", "cublasSetMathMode", "cublasSetStream_v2", "cublasSgemm_v2"];

/// What cudarc calls to compile kernels, and to say why it could not.
const NVRTC_FUNCTIONS: &[&str] = &[
    "nvrtcCompileProgram",
    "nvrtcCreateProgram",
    "nvrtcDestroyProgram",
    "nvrtcGetPTX",
    "nvrtcGetPTXSize",
    "nvrtcGetProgramLog",
    "nvrtcGetProgramLogSize",
];

/// What cudarc calls to load and launch kernels. All else in the driver, memtrack has looked up.
const DRIVER_FUNCTIONS: &[&str] = &["cuLaunchKernel", "cuModuleGetFunction", "cuModuleLoadData", "cuModuleUnload"];

/// Both libraries, open. Held until cudarc has opened them too, so that they are loaded once.
#[derive(Debug)]
pub(super) struct Libraries {
    _cublas: Library,
    _nvrtc: Library,
}

/// Opens both libraries and looks up every function that the kernels need of them and of the driver, which must be open.
///
/// # Errors
///
/// [`TrainError::MissingLibrary`] and [`TrainError::MissingFunction`].
pub(super) fn find() -> Result<Libraries, TrainError> {
    let cublas = open("cuBLAS", &cudarc::get_lib_name_candidates("cublas"), CUBLAS_FUNCTIONS)?;
    let nvrtc = open("nvrtc", &cudarc::get_lib_name_candidates("nvrtc"), NVRTC_FUNCTIONS)?;
    // SAFETY: the driver library is loaded already, since there is a context by now.
    require("the CUDA driver", unsafe { driver::sys::culib() }, DRIVER_FUNCTIONS)?;
    Ok(Libraries { _cublas: cublas, _nvrtc: nvrtc })
}

/// The first of `names` that opens, as cudarc takes it, if it has all `functions`.
fn open(library: &'static str, names: &[String], functions: &[&'static str]) -> Result<Library, TrainError> {
    let mut tried = Vec::new();
    for name in names {
        // SAFETY: loading a library runs its initialisers, as cudarc is about to do; these are NVIDIA's own.
        match unsafe { Library::new(name) } {
            Ok(found) => return require(library, &found, functions).map(|()| found),
            Err(error) => tried.push((name.clone(), loader_message(&error))),
        }
    }
    Err(TrainError::MissingLibrary { library, tried: grouped(&tried) })
}

fn require(library: &'static str, opened: &Library, functions: &[&'static str]) -> Result<(), TrainError> {
    for function in functions.iter().copied() {
        // SAFETY: the symbol is only looked for; nothing is read or called through the type given here.
        if let Err(error) = unsafe { opened.get::<unsafe extern "C" fn()>(function) } {
            return Err(TrainError::MissingFunction { library, function, message: loader_message(&error) });
        }
    }
    Ok(())
}

/// What the loader said, which the error keeps as its source.
fn loader_message(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Names with what the loader said of each, short: names of which it said the same are told once and counted.
pub(crate) fn grouped(tried: &[(String, String)]) -> String {
    let mut groups: Vec<(&str, &str, usize)> = Vec::new();
    for (name, message) in tried {
        // The loader mostly begins with the name itself.
        let message =
            message.strip_prefix(name.as_str()).map_or(message.as_str(), |rest| rest.trim_start_matches([':', ' ']));
        match groups.iter_mut().find(|(_, said, _)| *said == message) {
            Some((first, _, others)) => *others += usize::from(*first != name),
            None => groups.push((name, message, 0)),
        }
    }
    let lines: Vec<String> = groups
        .into_iter()
        .map(|(name, message, others)| match others {
            0 => format!("{name}: {message}"),
            1 => format!("{name} and 1 other name: {message}"),
            _ => format!("{name} and {others} other names: {message}"),
        })
        .collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_which_the_loader_says_the_same_are_told_once() {
        let said = |name: &str, message: &str| (name.to_owned(), message.to_owned());
        let tried = [
            said("liba.so", "liba.so: no such file"),
            said("liba.so", "liba.so: no such file"),
            said("liba.so.2", "liba.so.2: invalid ELF header"),
            said("liba.so.1", "liba.so.1: no such file"),
            said("liba.so.3", "libb.so: no such file"),
        ];
        assert_eq!(
            grouped(&tried),
            "liba.so and 1 other name: no such file; liba.so.2: invalid ELF header; liba.so.3: libb.so: no such file"
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_without_a_needed_function_is_refused_with_the_function_and_the_loaders_message() {
        let names = ["libmemtrack-absent.so".to_owned(), "libc.so.6".to_owned()];
        open("cuBLAS", &names, &["malloc"]).unwrap();
        let error = open("cuBLAS", &names, &["malloc", "cublasCreate_v2"]).unwrap_err();
        let TrainError::MissingFunction { library, function, message } = &error else { panic!("{error:?}") };
        assert_eq!((*library, *function), ("cuBLAS", "cublasCreate_v2"));
        assert!(message.contains("cublasCreate_v2"), "{message}");
    }

    #[test]
    fn a_library_that_does_not_open_is_refused_with_the_loaders_message() {
        let error = open("nvrtc", &["libmemtrack-absent.so".to_owned()], &[]).unwrap_err().to_string();
        assert!(error.starts_with("nvrtc cannot be loaded: libmemtrack-absent.so: "), "{error}");
    }
}
