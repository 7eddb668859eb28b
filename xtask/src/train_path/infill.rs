//! An infiller of molecules, its judge, a second judge, and GRPO.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{End, Stage, TrainPath, infill_look as look};
use crate::process;

const GENERATOR: &str = "runs/infill/generator";
const JUDGE: &str = "runs/infill/judge";
const SECOND_JUDGE: &str = "runs/infill/second-judge";
const GRPO: &str = "runs/infill/grpo";

/// `cargo xtask train infill`.
pub(crate) const INFILL: TrainPath = TrainPath {
    name: "infill",
    stages: &[
        Stage {
            command: "pretrain",
            arguments: &["configs/infill/generator.toml"],
            run: GENERATOR,
            end: End::Steps("masked_lm"),
        },
        Stage {
            command: "train-judge",
            arguments: &["configs/infill/judge.toml"],
            run: JUDGE,
            end: End::Judge,
        },
        Stage {
            command: "train-judge",
            arguments: &["configs/infill/second-judge.toml"],
            run: SECOND_JUDGE,
            end: End::Judge,
        },
        Stage {
            command: "train",
            arguments: &["configs/infill/grpo.toml"],
            run: GRPO,
            end: End::Event("model"),
        },
    ],
    show,
};

/// Molecules filled before and after, and a table of more.
fn show(root: &Path, grpo: &dyn Fn() -> Command) -> Result<()> {
    let [before, after] = [GENERATOR, GRPO].map(|run| {
        let mut command = grpo();
        command.arg("fill").arg(format!("{run}/model")).args(look::ARGUMENTS).current_dir(root);
        command.args(["--judge", &format!("{JUDGE}/model")]);
        command.args(["--second-judge", &format!("{SECOND_JUDGE}/model")]);
        look::examples(&process::output_of(&mut command)?)
    });
    print!("{}", look::compared(&before?, &after?)?);
    Ok(())
}
