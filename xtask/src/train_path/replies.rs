//! Replies to tweets: the bundled pairs in two halves, a supervised training on one, GRPO on the tweets of the other.

use super::{End, Stage, TrainPath};

/// `cargo xtask train replies`. `grpo train` itself shows replies and a table before and after.
pub(crate) const REPLIES: TrainPath = TrainPath {
    name: "replies",
    stages: &[
        Stage {
            command: "split-data",
            arguments: &[
                "--input",
                "data/replies/replies.jsonl",
                "--output-dir",
                "runs/replies/data",
            ],
            run: "runs/replies/data",
            end: End::File("phase_split_statistics.json"),
        },
        Stage {
            command: "pretrain",
            arguments: &["configs/replies/baseline.toml"],
            run: "runs/replies/baseline",
            end: End::Event("adapter"),
        },
        Stage {
            command: "train",
            arguments: &["configs/replies/grpo.toml"],
            run: "runs/replies/grpo",
            end: End::Event("adapter"),
        },
    ],
    show: |_, _| Ok(()),
};
