//! Tests of the compiled program: commands, outputs and error messages.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod audit;
mod audit_ledger;
mod bench;
mod bench_pmo;
mod checkout;
mod cleaning;
mod completions;
mod conditions;
mod configuration;
mod describe;
mod devices;
mod early_failures;
mod endings;
mod engagement;
mod eval;
mod eval_model;
mod evaluation;
mod explain;
#[path = "../../../grpo-hub/tests/it/fake.rs"]
#[expect(dead_code, reason = "shared with the tests of grpo-hub, which use all of it")]
mod fake_hub;
#[path = "../../../grpo-servers/tests/it/vllm/fake.rs"]
#[expect(dead_code, reason = "shared with the tests of grpo-servers, which use all of it")]
mod fake_vllm;
mod families;
mod fill;
mod first_hour;
mod folders;
mod foreign_files;
mod gguf;
mod golden_models;
mod guards;
mod help;
mod hostile;
mod hub_models;
mod hub_names;
mod import_molgpt;
mod import_trl;
mod infill_parts;
mod infill_refusals;
mod infilling;
mod init_project;
mod judges;
mod judging;
mod kill_windows;
mod logprob;
mod models;
mod molecules;
mod mpirun;
mod next_steps;
mod outputs;
mod own_reward_runs;
mod own_rewards;
mod pairs;
mod pipeline_refusals;
mod pipelines;
mod plain_words;
mod polychromic;
mod preflight;
mod recorded_engine;
mod replay;
mod replies;
mod reply_rewards;
mod report;
mod resume;
mod sample;
mod schemas;
mod score_inputs;
mod scoring;
mod selftest;
#[path = "../../../grpo-servers/tests/it/server.rs"]
#[expect(dead_code, reason = "shared with the tests of grpo-servers, which use all of it")]
mod server;
mod several_files;
mod shipped;
mod shipped_guards;
mod supervised;
mod supervised_resume;
mod support;
mod sweep;
mod tables;
mod tampering;
mod tampering_kinds;
mod texts;
mod training;
mod training_texts;
mod trial;
mod used_models;
mod verify;
mod vllm;
mod wrong_inputs;
