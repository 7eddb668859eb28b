//! Measuring with older instructions than those of the processor.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::process;

/// gdb script that clears the bits of AVX-512 in what `cpuid` answers.
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

    /// Returns an error if programs cannot be started this way.
    pub(super) fn check_tools(self) -> Result<()> {
        process::output_of(Command::new("gdb").arg("--version"))
            .context("--isa requires gdb; install the package `gdb`")?;
        Ok(())
    }

    /// Returns the command that runs `program`, which takes further arguments.
    pub(super) fn command(self, root: &Path, program: &Path) -> Command {
        let mut command = Command::new("gdb");
        command.args(["-q", "-batch", "-x"]).arg(root.join(SCRIPT)).arg("--args").arg(program);
        command
    }

    /// Returns environment variables with the same effect for PyTorch. On processors by AMD, MKL never uses
    /// AVX-512.
    pub(super) fn of_torch(self) -> [(&'static str, &'static str); 3] {
        match self {
            Self::Avx2 => [
                ("ATEN_CPU_CAPABILITY", "avx2"),
                ("ONEDNN_MAX_CPU_ISA", "AVX2"),
                ("MKL_ENABLE_INSTRUCTIONS", "AVX2"),
            ],
        }
    }
}
