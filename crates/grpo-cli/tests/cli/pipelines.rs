//! `grpo run`: stages are run, reused, resumed or rejected.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use snapbox::str;

use crate::support::{Ended, Place, signal, train_toml};

const PIPELINE: &str = r#"[[stages]]
name = "prior"
command = "pretrain"
config = "pretrain.toml"
arguments = ["--set", "pretrain.epochs=2"]
inputs = ["molecules.smi"]
outputs = ["prior/model/manifest.json"]
metrics = ["eval_loss"]

[[stages]]
name = "grpo"
command = "train"
config = "train.toml"
outputs = ["run/model/manifest.json"]
metrics = ["reward", "rewrd"]

[[summary]]
command = "report"
arguments = ["run", "--output=report.html"]
"#;

/// Creates a place with a pipeline of two stages.
pub(crate) fn place() -> Place {
    let place = Place::for_pretraining();
    let train = train_toml();
    let (_, after_model) = train.split_once("model = ").unwrap();
    let (_, rest) = after_model.split_once('\n').unwrap();
    place.write("train.toml", format!("run = \"run\"\nmodel = \"prior/model\"\n{rest}"));
    place.write("pipeline.toml", PIPELINE);
    place
}

/// Returns the outcome of each stage in the final table.
fn outcomes(ended: &Ended) -> Vec<&str> {
    let rows = ended.stdout.lines().filter_map(|line| line.strip_prefix(' '));
    let cells = rows.filter_map(|row| row.split_whitespace().nth(1));
    let known = ["done", "resumed", "reused"];
    cells.filter(|cell| known.contains(cell)).collect()
}

/// Returns the lines about stages of a check.
fn plan(checked: &Ended) -> String {
    let lines = checked.stdout.lines();
    let of_stages = lines.filter(|line| {
        !line.starts_with("summary ") && !line.starts_with("pipeline.toml: pipeline of ")
    });
    of_stages.map(|line| format!("{line}\n")).collect()
}

/// A check lists the commands after the last stage, too, and says that the file is valid. Its columns
/// are as wide as the longest name.
#[test]
fn a_check_lists_all_commands() {
    let place = place();
    let long = "a stage with a long name";
    place.write("pipeline.toml", PIPELINE.replace("\"prior\"", &format!("\"{long}\"")));
    let checked = place.succeed(&["run", "pipeline.toml", "--check"]);
    let command = format!("{long} grpo pretrain pretrain.toml");
    let lines: Vec<&str> = checked.stdout.lines().collect();
    let [first, second, third, last] = lines[..] else { panic!("{}", checked.stdout) };
    assert!(first.starts_with(&command), "{first}");
    assert_eq!(second, format!("{:<24} grpo train train.toml", "grpo"));
    assert_eq!(third, format!("{:<24} grpo report run --output=report.html", "summary"));
    assert_eq!(
        last,
        "pipeline.toml: pipeline of 2 stages is valid (models and data were not read)"
    );
}

#[test]
fn stages_run_once_and_are_reused() {
    let place = place();
    let pipeline = |words: &[&str]| place.run(&[&["run", "pipeline.toml"], words].concat());
    let before = place.files();
    let checked = pipeline(&["--check"]);
    assert_eq!(
        plan(&checked),
        "prior        grpo pretrain pretrain.toml --set pretrain.epochs=2\ngrpo         grpo train train.toml\n"
    );
    assert_eq!(place.files(), before);

    let first = pipeline(&["--plain"]);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert_eq!(outcomes(&first), ["done", "done"]);
    assert!(
        first.stdout.contains("eval_loss ") && first.stdout.contains(" → "),
        "{}",
        first.stdout
    );
    assert!(first.stdout.contains("rewrd –") && place.path("report.html").is_file());
    assert!(first.stderr.contains("$ grpo train train.toml --plain\n"), "{}", first.stderr);
    let warned = "warning: run/metrics.jsonl has no metric 'rewrd'; did you mean 'reward'?\n";
    assert!(first.stderr.contains(warned), "{}", first.stderr);

    let weights = place.read("run/model/manifest.json");
    place.write("train.toml", place.read("train.toml").replace("steps = 3", "steps = 4"));
    let second = pipeline(&[]);
    assert_eq!((second.code, outcomes(&second)), (Some(0), vec!["reused", "reused"]));
    let said = "grpo         warning: train.toml no longer matches run/config.toml: train.steps is now 4, but was 3\n";
    assert!(second.stderr.contains(said), "{}", second.stderr);
    assert_eq!(place.read("run/model/manifest.json"), weights);
    let refused = "error: --set seed=7 applies to the last stage, `grpo`, which is finished (run) and would not run again; add --force to run every stage from scratch, or run this stage alone: `grpo train train.toml --run FOLDER --set seed=7`\n";
    assert_eq!(pipeline(&["--set", "seed=7"]).stderr, refused);

    let forced = pipeline(&["--force"]);
    assert_eq!((forced.code, outcomes(&forced)), (Some(0), vec!["done", "done"]));
    assert!(place.path("run.old-1").is_dir() && place.path("prior.old-1").is_dir());
    place.refuse(
        &["run", "pipeline.toml", "--set", "run=elsewhere"],
        str!["--set run=… would separate the last stage from the outputs and the summary of the pipeline; change `run` in its configuration"],
    );
}

/// Files that a run recorded are compared by content, other inputs by time.
#[test]
fn a_stage_with_changed_inputs_and_all_later_ones_run_again() {
    let place = place();
    let set_time = |file: &str, time: SystemTime| {
        let file = fs::File::options().write(true).open(place.path(file)).unwrap();
        file.set_modified(time).unwrap();
    };
    let soon = SystemTime::now() + Duration::from_secs(600);
    let planned = |words: &[&str]| {
        plan(&place.succeed(&[&["run", "pipeline.toml", "--check"], words].concat()))
    };
    place.write("notes.txt", "1");
    // Another spelling of the path in the configuration.
    let inputs = r#"inputs = ["./molecules.smi", "notes.txt"]"#;
    place.write("pipeline.toml", PIPELINE.replace(r#"inputs = ["molecules.smi"]"#, inputs));
    place.succeed(&["run", "pipeline.toml"]);

    set_time("molecules.smi", soon);
    assert_eq!(planned(&[]), "prior        finished, reused\ngrpo         finished, reused\n");
    set_time("notes.txt", soon);
    let again = |reason: &str, set: &str| {
        format!(
            "prior        grpo pretrain pretrain.toml --set pretrain.epochs=2 --force  # again: {reason}\ngrpo         grpo train train.toml {set}--force  # again: stage `prior` runs before it\n"
        )
    };
    assert_eq!(
        planned(&["--set", "seed=7"]),
        again("notes.txt is newer than prior/model/manifest.json", "--set=seed=7 ")
    );
    set_time("notes.txt", SystemTime::UNIX_EPOCH);
    let molecules = place.read("molecules.smi");
    place.write("molecules.smi", format!("{molecules}CCCCO\n"));
    set_time("molecules.smi", SystemTime::UNIX_EPOCH);
    assert_eq!(planned(&[]), again("molecules.smi has changed", ""));
    // Only the second stage reads the first one's model.
    place.write("molecules.smi", molecules);
    place.write("prior/model/config.json", place.read("prior/model/config.json") + " ");
    assert_eq!(
        planned(&[]),
        "prior        finished, reused\ngrpo         grpo train train.toml --force  # again: prior/model/config.json has changed\n"
    );
}

#[test]
fn a_finished_stage_has_a_valid_configuration_of_its_command() {
    let place = place();
    place.succeed(&["run", "pipeline.toml"]);
    let pretrain = place.read("pretrain.toml");
    place.write("pretrain.toml", pretrain.replace("epochs", "epoch"));
    let ended = place.run(&["run", "pipeline.toml"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("unknown key 'pretrain.epoch'"), "{}", ended.stderr);
    let said = "error: the configuration of stage `prior` is not valid: ";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);

    place.write("pretrain.toml", pretrain.replace("run = \"prior\"", "run = \"other\""));
    let train = place.read("train.toml");
    place.write("train.toml", train.replace("run = \"run\"", "run = \"prior\""));
    let grpo = PIPELINE.split_once("[[summary]]").unwrap().0.split_once("\n\n").unwrap().1;
    place.write("pipeline.toml", grpo);
    place.refuse(
        &["run", "pipeline.toml"],
        str!["stage `grpo` cannot use an existing folder; change `run` in train.toml, or add --force to rename the folder and run every stage from scratch: `prior` is a run of `grpo pretrain`; expected a run of `grpo train`"],
    );
    let forced = place.succeed(&["run", "pipeline.toml", "--force", "--check"]);
    assert_eq!(plan(&forced), "grpo         grpo train train.toml --force  # again: --force\n");
}

#[test]
fn the_values_that_a_run_was_started_with_are_no_change() {
    let place = place();
    let pipeline = |words: &[&str]| place.run(&[&["run", "pipeline.toml"], words].concat());
    // A key that is recorded in another form, and one that is recorded as given.
    let same = ["--set", "loss.epsilon_high=0.28", "--set=train.steps=2"];
    assert_eq!(outcomes(&pipeline(&same)), ["done", "done"]);
    let again = pipeline(&same);
    assert_eq!((again.code, outcomes(&again)), (Some(0), vec!["reused", "reused"]));
    for other in ["train.steps=4", "train.group_size=8", "reward.qed=0.7"] {
        let refused = pipeline(&["--set", other]);
        assert_eq!(refused.code, Some(1));
        assert!(refused.stderr.contains("which is finished (run)"), "{}", refused.stderr);
    }
    // A damaged run does not prevent a new one.
    place.write("run/config.toml", "seed = ");
    assert_eq!(outcomes(&pipeline(&["--force", "--set", "train.steps=2"])), ["done", "done"]);
}

#[test]
fn grpo_can_be_left_out() {
    let place = place();
    let without = PIPELINE.split("[[summary]]").next().unwrap();
    place.write("pipeline.toml", format!("use_grpo = false\n{without}"));
    let ended = place.succeed(&["run", "pipeline.toml", "--check"]);
    assert_eq!(plan(&ended), "prior        grpo pretrain pretrain.toml --set pretrain.epochs=2\n");
    let (_, only_grpo) = without.split_once("[[stages]]\nname = \"grpo\"").unwrap();
    place.write(
        "pipeline.toml",
        format!("use_grpo = false\n[[stages]]\nname = \"grpo\"{only_grpo}"),
    );
    place.refuse(
        &["run", "pipeline.toml"],
        str!["pipeline.toml:1: use_grpo = false leaves no stage; remove it"],
    );
}

#[test]
fn mistakes_are_found_before_anything_is_trained() {
    let place = place();
    let before = place.files();
    let ended = place.run(&["run", "pipeline.toml", "--set", "train.step=1"]);
    assert_eq!(
        ended.stderr,
        "error: --set train.step=1: unknown key 'train.step'; did you mean 'steps'?\nerror: the configuration of stage `grpo` is not valid: `grpo train train.toml --check --set=train.step=1` ended with exit status: 1\n"
    );
    assert_eq!((ended.code, place.files()), (Some(1), before));
    place.write("pipeline.toml", PIPELINE.replace("prior/model/manifest.json", "nothing"));
    let ended = place.run(&["run", "pipeline.toml"]);
    let said = "error: stage `prior` failed; resume with `grpo run pipeline.toml`: `grpo pretrain` succeeded but did not write nothing; correct outputs in the pipeline file\n";
    assert!(ended.stderr.ends_with(said), "{}", ended.stderr);
    // Clap exits with code 2 for unknown options. Pipelines detect them earlier.
    place.write("pipeline.toml", PIPELINE.replace("--output=", "--out="));
    let ended = place.run(&["run", "pipeline.toml"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.starts_with(
            "error: pipeline.toml:18: `grpo report run --out=report.html`: unexpected"
        ),
        "{}",
        ended.stderr
    );
}

/// Training a judge may succeed even if the judge must not be used.
#[test]
fn a_gate_that_was_not_passed_ends_the_pipeline() {
    let place = place();
    let gated = PIPELINE.replacen("metrics", "gate = \"gate.json\"\nmetrics", 1);
    place.write("pipeline.toml", gated);
    place.write("gate.json", r#"{"passed": false}"#);
    let ended = place.run(&["run", "pipeline.toml"]);
    let said = "stage `prior` failed; resume with `grpo run pipeline.toml`: gate.json does not record a passed gate\n";
    assert!(ended.code == Some(1) && ended.stderr.ends_with(said), "{}", ended.stderr);
    assert!(!place.path("run").exists());
    // A finished run cannot be resumed to pass it.
    let checked = place.succeed(&["run", "pipeline.toml", "--check"]).stdout;
    let again = "--force  # again: gate.json does not record a passed gate\n";
    assert!(checked.contains(again), "{checked}");
    place.write("gate.json", r#"{"passed": true}"#);
    let ended = place.succeed(&["run", "pipeline.toml"]);
    assert_eq!(outcomes(&ended), ["reused", "done"]);
}

/// A stage without a run folder is finished only with the arguments that produced its results. A gate
/// that was tightened is therefore evaluated again.
#[test]
fn a_stage_whose_arguments_changed_runs_again() {
    let place = Place::new();
    let line = |text: &str, reward: f64| {
        format!("{{\"prompt\": \"a\", \"completion\": \"{text}\", \"reward\": {reward}}}\n")
    };
    place.write("g.jsonl", line("x y", 1.0) + &line("z", 0.0));
    let gate = |bound: &str| {
        let stage = format!(
            "[[stages]]\nname = \"gate\"\ncommand = \"eval\"\narguments = [\"g.jsonl\", \"--gate=score/mean > {bound}\", \"-o=gate.json\"]\ninputs = [\"g.jsonl\"]\noutputs = [\"gate.json\"]\ngate = \"gate.json\"\n"
        );
        place.write("pipeline.toml", stage);
        place.run(&["run", "pipeline.toml"])
    };
    let first = gate("0.3");
    assert_eq!((first.code, outcomes(&first)), (Some(0), vec!["done"]), "{}", first.stderr);
    assert_eq!(outcomes(&gate("0.3")), ["reused"]);
    let impossible = gate("2");
    assert_eq!(impossible.code, Some(1), "{}", impossible.stderr);
    let again = "gate         runs again: its results are those of `grpo eval g.jsonl '--gate=score/mean > 0.3' -o=gate.json`\n";
    assert!(impossible.stderr.contains(again), "{}", impossible.stderr);
    let relaxed = gate("0.4");
    assert_eq!((relaxed.code, outcomes(&relaxed)), (Some(0), vec!["done"]), "{}", relaxed.stderr);
    fs::remove_file(place.path(".gate.json.stage.json")).unwrap();
    let unknown = gate("0.4");
    let foreign = "error: gate.json exists, but this pipeline did not write it; rename it (--force does so), or let stage `gate` write another file\n";
    assert_eq!((unknown.code, unknown.stderr.as_str()), (Some(1), foreign));
}

/// SIGTERM is forwarded to the running command, which writes a checkpoint. The next call resumes
/// it.
#[test]
#[cfg(unix)]
fn an_interrupted_stage_resumes() {
    let place = place();
    place.write("train.toml", place.read("train.toml").replace("steps = 3", "steps = 100"));
    let child = place.spawn(&["run", "pipeline.toml", "--threads=1"]);
    place.wait_for_lines("run/metrics.jsonl", 3);
    signal(&child, "-TERM");
    let ended = Ended::wait_for(child);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert!(
        ended.stderr.ends_with("interrupted  resume with `grpo run pipeline.toml`\n"),
        "{}",
        ended.stderr
    );
    assert!(place.read("run/events.jsonl").lines().last().unwrap().contains("interrupted"));

    let checked = place.succeed(&["run", "pipeline.toml", "--check"]);
    assert_eq!(
        plan(&checked),
        "prior        finished, reused\ngrpo         grpo train --resume=run\n"
    );
    let checked = place.succeed(&["run", "pipeline.toml", "--check", "--set", "seed=7"]);
    assert_eq!(
        plan(&checked),
        "prior        finished, reused\ngrpo         grpo train train.toml --set=seed=7 --force  # again: the interrupted run had other values of --set\n"
    );
    let train = place.read("train.toml");
    place.write("train.toml", train.replace("steps = 100", "steps = 5"));
    let checked = place.succeed(&["run", "pipeline.toml", "--check"]);
    let said = "warning: train.toml no longer matches run/config.toml: train.steps is now 5, but was 100; the run continues with the recorded value (rename its folder to start again)\n";
    assert!(checked.stderr.contains(said), "{}", checked.stderr);
    let ended = place.succeed(&["run", "pipeline.toml"]);
    assert_eq!(outcomes(&ended), ["reused", "resumed"]);
}

/// With the same configuration, the guard would stop the run again.
#[test]
fn a_run_that_a_guard_stopped_runs_again() {
    let place = place();
    let guard = "\n[[guards]]\nwatch = \"entropy\"\nabove = 0.0\naction = \"stop\"\n";
    place.write("train.toml", place.read("train.toml") + guard);
    let ended = place.run(&["run", "pipeline.toml"]);
    assert!(ended.stderr.contains("a guard stopped training run run"), "{}", ended.stderr);
    let checked = plan(&place.succeed(&["run", "pipeline.toml", "--check"]));
    let again = "grpo         grpo train train.toml --force  # again: a guard stopped it\n";
    assert!(checked.ends_with(again), "{checked}");
    place.write("train.toml", place.read("train.toml").replace(guard, ""));
    assert_eq!(outcomes(&place.succeed(&["run", "pipeline.toml"])), ["reused", "done"]);
}

#[test]
fn models_and_data_exist_or_are_written_by_an_earlier_stage() {
    let place = place();
    let train = place.read("train.toml").replace("prior/model", "priro/model");
    place.write("train.toml", train);
    place.refuse(
        &["run", "pipeline.toml", "--check"],
        str![[r#"pipeline.toml:13: model = "priro/model" does not exist, and no earlier stage writes it; correct the path in train.toml"#]],
    );
}

#[test]
fn the_bundled_pipelines_are_valid() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (name, stages) in [("infill", 4), ("replies", 5)] {
        let file = format!("configs/{name}/pipeline.toml");
        let mut command = Place::new().command(&["run", &file, "--check", "--force"]);
        let ended = Ended::of_command(command.current_dir(&root));
        let valid = format!("{file}: pipeline of {stages} stages is valid ");
        let last = ended.stdout.lines().last().unwrap_or_default();
        assert!(ended.code == Some(0) && last.starts_with(&valid), "{last} {}", ended.stderr);
    }
}
