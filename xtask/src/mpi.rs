//! Whether `grpo` can be built with the feature `mpi` on this machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::process::is_installed;

/// Folders with libclang, which bindgen loads to read MPI's header.
const FOLDERS_OF_LIBCLANG: [&str; 4] =
    ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];

/// How to install what [`missing`] finds.
pub(crate) const INSTALL: &str =
    "on Debian and Ubuntu, run `sudo apt install libopenmpi-dev openmpi-bin libclang-dev`";

/// Returns the arguments of cargo that add the feature `mpi` if it can be built.
pub(crate) fn features() -> &'static [&'static str] {
    if missing().is_none() { &["--features", "grpo-cli/mpi"] } else { &[] }
}

/// Variables with which `mpi-sys` finds an MPI library without `mpicc`.
const OTHER_WAYS: [&str; 3] = ["MPICC", "MPI_PKG_CONFIG", "CRAY_MPICH_DIR"];

/// Returns whether `mpi-sys` will not find an MPI library.
pub(crate) fn lacks_library() -> bool {
    let pkg_config = |name: &str| {
        let status = Command::new("pkg-config").args(["--exists", name]).status();
        status.is_ok_and(|status| status.success())
    };
    !is_installed(&mut Command::new("mpicc"))
        && OTHER_WAYS.iter().all(|name| std::env::var_os(name).is_none())
        && !["mpich", "ompi"].into_iter().any(pkg_config)
}

/// Returns what is missing to build and test the feature `mpi`, if anything.
pub(crate) fn missing() -> Option<&'static str> {
    let is_missing = |program: &&str| !is_installed(&mut Command::new(program));
    let program = ["mpicc", "mpirun"].into_iter().find(is_missing);
    program.or_else(|| (!has_libclang()).then_some("libclang"))
}

fn has_libclang() -> bool {
    if std::env::var_os("LIBCLANG_PATH").is_some() {
        return true;
    }
    // Debian: /usr/lib/llvm-14/lib/libclang.so.1
    let of_llvm = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let of_llvm = of_llvm.map(|entry| entry.path().join("lib"));
    let folders = FOLDERS_OF_LIBCLANG.iter().map(|folder| Path::new(folder).to_owned());
    folders.chain(of_llvm).any(|folder| {
        fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .any(|file| file.file_name().to_string_lossy().starts_with("libclang"))
    })
}
