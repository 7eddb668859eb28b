//! A training of several stages, one behind another: `cargo xtask train infill` and `cargo xtask train replies`.

mod infill;
mod infill_look;
mod replies;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::process;

pub(crate) use infill::INFILL;
pub(crate) use replies::REPLIES;

/// Stages, and what is shown when they are done.
pub(crate) struct TrainPath {
    /// Its name behind `cargo xtask train`.
    name: &'static str,
    /// In this order, as each needs what those before it made. The last one is `grpo train`.
    stages: &'static [Stage],
    /// Shows what came of it; the function makes the command of the program.
    show: fn(&Path, &dyn Fn() -> Command) -> Result<()>,
}

/// A command of `grpo` with its arguments, the folder that it writes, and what shows there that it came to its end.
struct Stage {
    command: &'static str,
    /// The configuration, or options where there is none.
    arguments: &'static [&'static str],
    run: &'static str,
    end: End,
}

/// What a run has that came to its end.
enum End {
    /// The last line of metrics.jsonl is of the last step of this section of config.toml, and there is a model.
    Steps(&'static str),
    /// The same of a judge, which passed its gate.
    Judge,
    /// The file of this name, which is written last, and is newer than what the arguments name.
    File(&'static str),
    /// The last event is that all steps are done, and there is what was trained, in the folder of this name.
    Event(&'static str),
}

/// What is asked for behind `infill`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    /// Everything anew.
    force: bool,
    /// Arguments of the last stage alone.
    of_grpo: Vec<String>,
}

/// What is done with a stage.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// Its run is taken as it is.
    Taken,
    /// It is run with these arguments behind its command.
    Run(Vec<String>),
}

impl Plan {
    /// Whether the run that is there counts, with the configuration that it was begun with.
    fn is_of_a_run_there(&self) -> bool {
        match self {
            Self::Taken => true,
            Self::Run(words) => words[0].starts_with("--resume"),
        }
    }
}

impl TrainPath {
    /// Runs what is missing of the stages, then shows what came of it. `grpo` makes the command of the program.
    pub(crate) fn train(
        &self,
        root: &Path,
        arguments: &[String],
        grpo: impl Fn() -> Command,
    ) -> Result<()> {
        let asked = self.asked(arguments)?;
        let plans = self.plans(root, &asked)?;
        if !asked.of_grpo.is_empty() {
            eprintln!("{} is for the last stage, `grpo train`, alone", asked.of_grpo.join(" "));
        }
        // A slip in its settings is not to be found after the minutes of the others.
        if let Some(plan @ Plan::Run(words)) = plans.last()
            && !plan.is_of_a_run_there()
        {
            let words = words.iter().filter(|word| *word != "--force");
            process::run(grpo().args(["train", "--check"]).args(words).current_dir(root))?;
        }
        for (stage, plan) in self.stages.iter().zip(plans) {
            if plan.is_of_a_run_there()
                && let Some(difference) = stage.difference(root)?
            {
                eprintln!(
                    "{} was made with another configuration than {} is now: {difference}",
                    stage.run,
                    stage.arguments.join(" ")
                );
            }
            match plan {
                Plan::Taken => eprintln!(
                    "{} is finished and taken as it is (--force does everything anew)",
                    stage.run
                ),
                Plan::Run(words) => {
                    process::run(grpo().arg(stage.command).args(words).current_dir(root))?;
                }
            }
        }
        (self.show)(root, &grpo)
    }

    /// Reads what stands behind its name.
    fn asked(&self, arguments: &[String]) -> Result<Asked> {
        let mut asked = Asked::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--force" => asked.force = true,
                "--plain" => asked.of_grpo.push(word.clone()),
                "--set" => {
                    let setting = words.next().context("--set needs KEY=VALUE behind it")?;
                    asked.of_grpo.push(format!("--set={setting}"));
                }
                _ if word.starts_with("--set=") => asked.of_grpo.push(word.clone()),
                _ => bail!(
                    "`cargo xtask train {}` knows --force, --set KEY=VALUE and --plain, and not `{word}`; its stages can be run one by one with {}",
                    self.name,
                    self.commands()
                ),
            }
        }
        Ok(asked)
    }

    /// What is done with each stage. From the first that is run, all are, since each is made of those before it.
    fn plans(&self, root: &Path, asked: &Asked) -> Result<Vec<Plan>> {
        let mut anew = asked.force;
        let mut plans = Vec::new();
        for (place, stage) in (1..).zip(self.stages) {
            let there = root.join(stage.run).exists();
            let is_last = place == self.stages.len();
            let own: &[String] = if is_last { &asked.of_grpo } else { &[] };
            let has_settings = own.iter().any(|word| word.starts_with("--set"));
            if !anew && there && stage.is_finished(root)? {
                ensure!(
                    !has_settings,
                    "{} is finished, so that {} would change nothing; add --force, which does all stages anew, or use `grpo train {} --run FOLDER` for a run beside it",
                    stage.run,
                    own.join(" "),
                    stage.arguments.join(" ")
                );
                plans.push(Plan::Taken);
                continue;
            }
            let goes_on = is_last && there && !anew && !has_settings;
            let mut words = match goes_on {
                true => vec![format!("--resume={}", stage.run)],
                false => stage.arguments.iter().map(|&word| word.to_owned()).collect(),
            };
            if there && !goes_on {
                // What is there is renamed.
                words.push("--force".to_owned());
            }
            words.extend(own.iter().cloned());
            plans.push(Plan::Run(words));
            anew = true;
        }
        Ok(plans)
    }

    /// What its stages are run with, each once.
    fn commands(&self) -> String {
        let mut names: Vec<String> = Vec::new();
        for stage in self.stages {
            let name = format!("`grpo {}`", stage.command);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        match names.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} and {last}", others.join(", "))
            }
            _ => names.concat(),
        }
    }
}

impl Stage {
    /// What its configuration says otherwise than that of its run, if anything.
    fn difference(&self, root: &Path) -> Result<Option<String>> {
        let read = |path: &Path| -> Result<toml::Table> {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            toml::from_str(&text).with_context(|| format!("{} is no TOML", path.display()))
        };
        let Some(config) = self.arguments.first().filter(|word| word.ends_with(".toml")) else {
            return Ok(None);
        };
        let file = read(&root.join(config))?;
        Ok(first_difference(&file, &read(&root.join(self.run).join("config.toml"))?, ""))
    }

    /// Whether a file is there, and was written after the files that it is made from.
    fn is_newer(&self, root: &Path, made: &Path) -> Result<bool> {
        let written = |path: &Path| {
            let time = path.metadata().and_then(|metadata| metadata.modified());
            time.with_context(|| format!("{} cannot be looked at", path.display()))
        };
        if !made.is_file() {
            return Ok(false);
        }
        let made = written(made)?;
        let mut from = self.arguments.iter().map(|word| root.join(word));
        from.try_fold(true, |newer, path| Ok(newer && (!path.is_file() || written(&path)? <= made)))
    }

    /// Whether its run came to its end.
    fn is_finished(&self, root: &Path) -> Result<bool> {
        let run = root.join(self.run);
        let last = |name: &str| -> Result<Option<serde_json::Value>> {
            let path = run.join(name);
            let Ok(text) = std::fs::read_to_string(&path) else { return Ok(None) };
            let Some(line) = text.lines().last() else { return Ok(None) };
            // A line that was never finished is of a run that was not either.
            Ok(serde_json::from_str(line).ok())
        };
        let steps = |section: &str| -> Result<bool> {
            let path = run.join("config.toml");
            let Ok(text) = std::fs::read_to_string(&path) else { return Ok(false) };
            let config: toml::Table =
                toml::from_str(&text).with_context(|| format!("{} is no TOML", path.display()))?;
            let steps = config.get(section).and_then(|section| section.get("steps")?.as_integer());
            let done = last("metrics.jsonl")?.and_then(|line| line.get("train_step")?.as_i64());
            Ok(steps.is_some() && steps == done && run.join("model/manifest.json").is_file())
        };
        match self.end {
            End::Steps(section) => steps(section),
            End::File(name) => self.is_newer(root, &run.join(name)),
            End::Judge => {
                let report = std::fs::read_to_string(run.join("model/judge.json"));
                let report = report.ok().and_then(|text| serde_json::from_str(&text).ok());
                let passed = report
                    .and_then(|report: serde_json::Value| report.get("passed")?.as_bool())
                    .unwrap_or(false);
                Ok(passed && steps("judge")?)
            }
            End::Event(trained) => {
                let event = last("events.jsonl")?;
                let event = event.as_ref().and_then(|event| event.get("event")?.as_str());
                Ok(event == Some("finished") && run.join(trained).join("manifest.json").is_file())
            }
        }
    }
}

/// The first key of a configuration whose value is another one in the configuration of a run, which has all keys, in words.
/// Keys that the run does not write down, and those that the file leaves out, are not compared.
fn first_difference(file: &toml::Table, run: &toml::Table, path: &str) -> Option<String> {
    file.iter().find_map(|(key, value)| {
        let path = format!("{path}{key}");
        let recorded = run.get(key)?;
        match (value, recorded) {
            (toml::Value::Table(value), toml::Value::Table(recorded)) => {
                first_difference(value, recorded, &format!("{path}."))
            }
            _ if is_same(value, recorded) => None,
            _ => Some(format!("{path} = {value} now, and {recorded} then")),
        }
    })
}

/// `1` is `1.0`, and numbers that the program holds in 32 bits are written down as such. Tables in lists may lack defaults.
fn is_same(value: &toml::Value, recorded: &toml::Value) -> bool {
    use toml::Value::{Array, Float, Integer, Table};
    let number = |value: &toml::Value| match value {
        Integer(value) => Some(*value as f64),
        Float(value) => Some(*value),
        _ => None,
    };
    match (value, recorded) {
        (Array(value), Array(recorded)) => {
            value.len() == recorded.len()
                && value.iter().zip(recorded).all(|(value, recorded)| is_same(value, recorded))
        }
        (Table(value), Table(recorded)) => first_difference(value, recorded, "").is_none(),
        _ => match (number(value), number(recorded)) {
            (Some(value), Some(recorded)) => (value - recorded).abs() <= 1e-6 * value.abs(),
            _ => value == recorded,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// A root in which the named runs are finished, and those with `?` begun.
    fn root_with(runs: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for run in runs {
            let (name, is_begun) = (run.trim_end_matches('?'), run.ends_with('?'));
            let folder = root.path().join("runs/infill").join(name);
            std::fs::create_dir_all(folder.join("model")).unwrap();
            let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
            write("model/manifest.json", "{}");
            write("model/judge.json", r#"{"passed": true}"#);
            write("config.toml", "[masked_lm]\nsteps = 20\n[judge]\nsteps = 20\n");
            let last = if is_begun { 10 } else { 20 };
            write("metrics.jsonl", &format!("{{\"train_step\": 1}}\n{{\"train_step\": {last}}}\n"));
            let event = if is_begun { "interrupted" } else { "finished" };
            write("events.jsonl", &format!("{{\"step\": 3, \"event\": \"{event}\"}}\n"));
        }
        root
    }

    /// What is done, a line a stage.
    #[track_caller]
    fn check(runs: &[&str], typed: &str, expect: [&str; 4]) {
        let root = root_with(runs);
        let plans = INFILL.plans(root.path(), &INFILL.asked(&words(typed)).unwrap()).unwrap();
        let said: Vec<String> = INFILL
            .stages
            .iter()
            .zip(&plans)
            .map(|(stage, plan)| match plan {
                Plan::Taken => "taken".to_owned(),
                Plan::Run(words) => format!("{} {}", stage.command, words.join(" ")),
            })
            .collect();
        assert_eq!(said, expect, "{runs:?} {typed}");
    }

    #[test]
    fn what_is_missing_is_run_and_all_that_is_made_of_it() {
        let [generator, judge, second, grpo] = ["generator", "judge", "second-judge", "grpo"]
            .map(|name| format!("configs/infill/{name}.toml"));
        let anew = [
            format!("pretrain {generator}"),
            format!("train-judge {judge}"),
            format!("train-judge {second}"),
            format!("train {grpo}"),
        ];
        let anew = anew.each_ref().map(String::as_str);
        check(&[], "", anew);
        let all = ["generator", "judge", "second-judge", "grpo"];
        check(&all, "", ["taken"; 4]);
        check(&all[..3], "", ["taken", "taken", "taken", anew[3]]);
        check(&all[..1], "", ["taken", anew[1], anew[2], anew[3]]);
        let forced = anew.map(|line| format!("{line} --force"));
        let forced = forced.each_ref().map(String::as_str);
        check(&all, "--force", forced);
        // A judge that is trained again makes what was trained with it old.
        check(
            &["generator", "judge?", "second-judge", "grpo"],
            "",
            ["taken", forced[1], forced[2], forced[3]],
        );
        check(&all[1..], "", [anew[0], forced[1], forced[2], forced[3]]);
    }

    #[test]
    fn settings_are_for_grpo_alone() {
        let three = ["generator", "judge", "second-judge"];
        let with = "train configs/infill/grpo.toml --set=seed=7 --plain";
        check(&three, "--set seed=7 --plain", ["taken", "taken", "taken", with]);
        check(&three, "--set=seed=7 --plain", ["taken", "taken", "taken", with]);
        let begun = [&three[..], &["grpo?"]].concat();
        check(&begun, "", ["taken", "taken", "taken", "train --resume=runs/infill/grpo"]);
        let instead = "train configs/infill/grpo.toml --force --set=seed=7";
        check(&begun, "--set seed=7", ["taken", "taken", "taken", instead]);

        let finished = root_with(&[&three[..], &["grpo"]].concat());
        let settings = INFILL.asked(&words("--set seed=7")).unwrap();
        let error = INFILL.plans(finished.path(), &settings).unwrap_err().to_string();
        assert_eq!(
            error,
            "runs/infill/grpo is finished, so that --set=seed=7 would change nothing; add --force, which does all stages anew, or use `grpo train configs/infill/grpo.toml --run FOLDER` for a run beside it"
        );
        assert_eq!(
            INFILL.asked(&words("--run x")).unwrap_err().to_string(),
            "`cargo xtask train infill` knows --force, --set KEY=VALUE and --plain, and not `--run`; its stages can be run one by one with `grpo pretrain`, `grpo train-judge` and `grpo train`"
        );
        assert_eq!(
            INFILL.asked(&words("--set")).unwrap_err().to_string(),
            "--set needs KEY=VALUE behind it"
        );
    }

    /// The supervised stage ends as GRPO does, and neither goes on with a run nor takes GRPO's settings.
    #[test]
    fn the_last_stage_of_replies_alone_has_settings() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join("runs/replies").join(name);
        let finish = |run: &str, event: &str| {
            std::fs::create_dir_all(path(run).join("adapter")).unwrap();
            std::fs::write(path(run).join("adapter/manifest.json"), "{}").unwrap();
            let line = format!("{{\"step\": 3, \"event\": \"{event}\"}}\n");
            std::fs::write(path(run).join("events.jsonl"), line).unwrap();
        };
        let check = |typed: &str, expect: [&str; 3]| {
            let plans = REPLIES.plans(root.path(), &REPLIES.asked(&words(typed)).unwrap()).unwrap();
            let said = plans.iter().map(|plan| match plan {
                Plan::Taken => "taken".to_owned(),
                Plan::Run(words) => words.join(" "),
            });
            assert_eq!(said.collect::<Vec<_>>(), expect, "{typed}");
        };
        let split = "--input data/replies/replies.jsonl --output-dir runs/replies/data";
        let [baseline, grpo] = ["configs/replies/baseline.toml", "configs/replies/grpo.toml"];
        let with = format!("{grpo} --set=seed=7 --plain");
        check("--set seed=7 --plain", [split, baseline, &with]);
        std::fs::create_dir_all(path("data")).unwrap();
        std::fs::write(path("data/phase_split_statistics.json"), "{}").unwrap();
        finish("baseline", "finished");
        check("--set seed=7 --plain", ["taken", "taken", &with]);
        finish("grpo", "interrupted");
        check("", ["taken", "taken", "--resume=runs/replies/grpo"]);
        finish("baseline", "interrupted");
        let anew = [format!("{baseline} --force"), format!("{grpo} --force")];
        check("", ["taken", &anew[0], &anew[1]]);
        // Another file of pairs: what was split is old.
        let pairs = root.path().join("data/replies");
        std::fs::create_dir_all(&pairs).unwrap();
        let pairs = std::fs::File::create(pairs.join("replies.jsonl")).unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
        pairs.set_modified(later).unwrap();
        check("", [&format!("{split} --force"), &anew[0], &anew[1]]);
        pairs.set_modified(std::time::UNIX_EPOCH).unwrap();
        check("", ["taken", &anew[0], &anew[1]]);
        std::fs::remove_file(path("data/phase_split_statistics.json")).unwrap();
        check("", [&format!("{split} --force"), &anew[0], &anew[1]]);
    }

    #[test]
    fn a_judge_that_did_not_pass_is_not_taken() {
        let root = root_with(&["generator", "judge"]);
        let report = root.path().join("runs/infill/judge/model/judge.json");
        std::fs::write(report, r#"{"passed": false}"#).unwrap();
        let plans = INFILL.plans(root.path(), &Asked::default()).unwrap();
        assert_eq!(plans[0], Plan::Taken);
        assert_eq!(plans[1], Plan::Run(words("configs/infill/judge.toml --force")));
    }

    /// The stages name files that are in the repository.
    #[test]
    fn the_configurations_are_there_and_name_the_runs() {
        let root = crate::workspace::root();
        for stage in INFILL.stages.iter().chain(REPLIES.stages) {
            let config = stage.arguments[0];
            if !config.ends_with(".toml") {
                assert!(stage.arguments.contains(&stage.run), "{}", stage.command);
                continue;
            }
            let text = std::fs::read_to_string(root.join(config)).unwrap();
            let table: toml::Table = toml::from_str(&text).unwrap();
            assert_eq!(table["run"].as_str(), Some(stage.run), "{config}");
            if let End::Steps(section) = stage.end {
                assert!(table[section].get("steps").is_some(), "{config}");
            }
        }
        for path in [&INFILL, &REPLIES] {
            let last = path.stages.last().unwrap();
            assert_eq!(last.command, "train", "{}", path.name);
        }
    }

    #[test]
    fn an_edited_configuration_is_told() {
        let check = |file: &str, expect: Option<&str>| {
            let run = "seed = 42\nrun = \"a\"\n[masked_lm]\nsteps = 20\nrate = 0.8\nfloor = 0.05\n[[masking.stages]]\ntype = \"random\"\nmax_ratio = 0.9\nmore = false\n";
            let table = |text| toml::from_str::<toml::Table>(text).unwrap();
            let found = first_difference(&table(file), &table(run), "");
            assert_eq!(found.as_deref(), expect, "{file}");
        };
        check("seed = 42\n[masked_lm]\nsteps = 20\nrate = 0.80000001", None);
        check("seed = 42.0\n[preset]\nname = 3\n[masked_lm]\nfloor = 0.05", None);
        check("seed = 43", Some("seed = 43 now, and 42 then"));
        check("run = \"b\"", Some("run = \"b\" now, and \"a\" then"));
        check(
            "[masked_lm]\nsteps = 20\nfloor = 0.06",
            Some("masked_lm.floor = 0.06 now, and 0.05 then"),
        );
        check("masking.stages = [{ type = \"random\", max_ratio = 0.9 }]", None);
        for stages in ["[{ type = \"span\" }]", "[{ max_ratio = 0.8 }]", "[]", "[{}, {}]"] {
            let table: toml::Table = toml::from_str(&format!("masking.stages = {stages}")).unwrap();
            let run = "[[masking.stages]]\ntype = \"random\"\nmax_ratio = 0.9\n";
            let run: toml::Table = toml::from_str(run).unwrap();
            assert!(first_difference(&table, &run, "").is_some(), "{stages}");
        }
    }
}
