//! Limits programs to an older instruction set than that of the processor.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::process;

/// gdb script that clears the AVX-512 bits in the results of `cpuid`.
const SCRIPT: &str = "xtask/src/bench/avx2.py";

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(super) enum Isa {
    /// No AVX-512.
    Avx2,
}

impl Isa {
    /// Name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Avx2 => "AVX2",
        }
    }

    /// Returns an error if programs cannot be limited on this machine.
    pub(super) fn check_tools(self) -> Result<()> {
        if !process::is_installed(&mut Command::new("gdb")) {
            bail!("--isa requires gdb (`apt install gdb`)");
        }
        Ok(())
    }

    /// Returns the command that runs `program`, which takes further arguments.
    pub(super) fn command(self, root: &Path, program: &Path) -> Command {
        let mut command = Command::new("gdb");
        command.args(["-q", "-batch", "-x"]).arg(root.join(SCRIPT)).arg("--args").arg(program);
        command
    }

    /// Returns the environment variables that limit PyTorch, oneDNN and MKL.
    pub(super) fn torch_environment(self) -> [(&'static str, &'static str); 3] {
        match self {
            Self::Avx2 => [
                ("ATEN_CPU_CAPABILITY", "avx2"),
                ("ONEDNN_MAX_CPU_ISA", "AVX2"),
                ("MKL_ENABLE_INSTRUCTIONS", "AVX2"),
            ],
        }
    }
}
