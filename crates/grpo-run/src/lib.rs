#![doc = include_str!("../README.md")]
//!
//! ```text
//! runs/<name>/
//!   config.toml            resolved configuration
//!   run.json               versions, seed, device and input files (RunInfo)
//!   metrics.jsonl          one JSON object per step or validation (RunFolder::metrics_from)
//!   ledger.jsonl           hash chain of weights, completions and updates (LedgerStep)
//!   events.jsonl           hash chain of guards, roll-backs and other events (Event)
//!   events.out.tfevents.…  metrics for TensorBoard (TensorBoard)
//!   completions/
//!     step-N.parquet       completions, rewards and token statistics (CompletionRecord)
//!   evaluation-before.jsonl  completions of the evaluation before training (RunFolder::write_evaluation_before)
//!   comparison.json        evaluations before and after training (Comparison)
//!   checkpoints/step-N/    model or adapter, and a manifest.json with file hashes (Checkpoint)
//!     trainer/             remaining state of the run
//!   model/                 trained model, or adapter/ if only an adapter was trained
//!   rolled-back/N/         records undone by the Nth roll-back (RunFolder::set_aside)
//!   .lock                  locked by the process that writes to the folder (RunLock)
//! ```
//!
//! Files and folders are written under a temporary name, synced and then renamed, so readers see
//! either the old or the new version. Growing files are appended to line by line.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod atomic;
mod audit;
mod best_samples;
mod chain;
mod checkpoints;
mod comparison;
mod completions;
mod devices;
mod error;
mod evaluation_before;
mod events;
mod folder;
mod folder_files;
mod going_back;
mod info;
mod json_lines;
mod ledger;
mod logprobs;
mod manifest;
mod new_run;
mod renamed_inputs;
mod run_name;
mod tensorboard;

pub use atomic::{Existing, atomic_write, write_folder_atomically};
pub use audit::{
    Evidence, Finding, FurtherUpdates, INPUTS, Period, Plan, RecordPlan, ReferencePlan,
    ReferenceUpdate, StoredWeights, Verdict, Violation, audit, audit_records, thousands,
    unreadable,
};
pub use best_samples::{BestSample, BestTable, column_of_part};
pub use chain::ChainWriter;
pub use checkpoints::{Checkpoint, Newest};
pub use comparison::{ComparedSample, Comparison, DiversityScale, Measure};
pub use completions::{CompletionRecord, RecordedOutcome};
pub use devices::{RecordedDevice, RunDevices};
pub use error::RunError;
pub use events::{
    EndedBy, Event, EventKind, EventProof, ProvenEvent, last_state, was_stopped_by_guard,
};
pub use folder::{RunFolder, RunLock, lock_folder};
pub use info::{DataFile, RunInfo};
pub use json_lines::{JsonLinesWriter, read_json_lines, step_of_line};
pub use ledger::{
    CompletionDigest, LedgerCompletion, LedgerRollout, LedgerStep, LedgerUpdate, RecordedHashes,
    ReferenceChange,
};
pub use logprobs::{CompletionLogprobs, LogprobTable};
pub use manifest::{
    MODEL_CARD, VerifiedFolder, sha256, sha256_of_file, sha256_of_manifest, verify, write_manifest,
};
pub use new_run::move_aside;
pub use renamed_inputs::RenamedInput;
pub use tensorboard::TensorBoard;
