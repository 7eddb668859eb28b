//! The changes listed in `docs/trust.md`.

use std::fs;
use std::path::Path;

use grpo_run::{CompletionRecord, RunFolder, sha256_of_file, write_manifest};
use serde_json::{Value, json};

use crate::audit::{copy, lines, text};
use crate::tampering::Table;

pub(crate) fn configuration(table: &mut Table, config: &str) {
    const FOUND: &[&str] = &["configuration"];
    let keys = config.lines().enumerate().filter(|(_, line)| {
        let value = line.split_once(" = ").map(|(_, value)| value);
        value.is_some_and(|value| value.parse::<f64>().is_ok_and(|value| value > 0.0))
    });
    for (place, line) in keys.map(|(place, line)| (place, line.to_owned())).take(12) {
        table.add("changed config.toml", FOUND, move |run| {
            let (key, _) = line.split_once(" = ").unwrap();
            edit(&run.join("config.toml"), |old| {
                let mut lines: Vec<&str> = old.lines().collect();
                let changed = format!("{key} = 2");
                let other = format!("{key} = 3");
                lines[place] = if lines[place] == changed { &other } else { &changed };
                lines.join("\n") + "\n"
            });
        });
    }
    for steps in 4..8 {
        table.add("config.toml and its hash changed", FOUND, move |run| {
            edit(&run.join("config.toml"), |old| {
                old.replace("\nsteps = 3\n", &format!("\nsteps = {steps}\n"))
            });
            let hash = sha256_of_file(&run.join("config.toml")).unwrap();
            edit_json(&run.join("run.json"), |info| info["config_sha256"] = json!(hash));
        });
    }
    for empty in ["", "{}\n", "null\n"] {
        table.add("emptied run.json", FOUND, move |run| {
            fs::write(run.join("run.json"), empty).unwrap();
        });
    }
    let fields = [
        ("seed", json!(7)),
        ("started", json!("2020-01-01T00:00:00Z")),
        ("config_sha256", json!("")),
        ("data", json!([])),
        ("device", json!("cuda:0")),
        ("command", json!(["grpo"])),
        ("chained", json!(false)),
    ];
    for (field, value) in fields {
        table.add("changed run.json", FOUND, move |run| {
            edit_json(&run.join("run.json"), |info| info[field] = value.clone());
        });
    }
}

pub(crate) fn ledger(table: &mut Table) {
    const CHAIN: &[&str] = &["chain of records"];
    let file = |run: &Path| run.join("ledger.jsonl");
    let other = || json!("f".repeat(64));
    for step in 0..3 {
        table.add("changed line of the ledger", CHAIN, move |run| {
            edit_lines(&file(run), |lines| lines[step]["updates"][0]["learning_rate"] = json!(0.5));
        });
        table.add("changed line of the ledger", CHAIN, move |run| {
            edit_lines(&file(run), |lines| lines[step]["reference"] = other());
        });
        table.add("changed line of the ledger", CHAIN, move |run| {
            edit_lines(&file(run), |lines| lines[step]["recorded"]["completions"] = other());
        });
        table.add("ledger changed and linked again", CHAIN, move |run| {
            edit_lines(&file(run), |lines| lines[step]["updates"][0]["learning_rate"] = json!(0.5));
            link(&file(run));
        });
        table.add("ledger changed and linked again", CHAIN, move |run| {
            edit_lines(&file(run), |lines| lines[step]["updates"][0]["weights"] = other());
            link(&file(run));
        });
        table.add("doubled line of the ledger", CHAIN, move |run| {
            pick_lines(&file(run), |mut lines| {
                lines.insert(step, lines[step]);
                lines
            });
        });
        table.add("moved line of the ledger", CHAIN, move |run| {
            pick_lines(&file(run), |mut lines| {
                lines.swap(step, (step + 1) % 3);
                lines
            });
        });
        table.add("cut ledger", CHAIN, move |run| {
            pick_lines(&file(run), |mut lines| {
                lines.truncate(step);
                lines
            });
        });
        table.add("cut ledger", CHAIN, move |run| {
            pick_lines(&file(run), |mut lines| {
                lines.remove(step);
                lines
            });
        });
    }
    table.add("other line ends in the ledger", CHAIN, move |run| {
        let text = fs::read_to_string(file(run)).unwrap();
        fs::write(file(run), text.replacen('\n', "\r\n", 1)).unwrap();
    });
    table.add("deleted ledger", CHAIN, move |run| fs::remove_file(file(run)).unwrap());
    table.add("ledger without its chain", CHAIN, move |run| {
        edit_lines(&file(run), |lines| {
            for line in lines {
                line.as_object_mut().unwrap().remove("previous");
                line.as_object_mut().unwrap().remove("recorded");
            }
        });
    });
}

pub(crate) fn events(table: &mut Table, count: usize) {
    const CHAIN: &[&str] = &["chain of records", "saved folders", "configuration"];
    let file = |run: &Path| run.join("events.jsonl");
    for place in 0..count - 1 {
        table.add("changed line of events.jsonl", CHAIN, move |run| {
            edit_lines(&file(run), |lines| lines[place]["at"] = json!("2020-01-01T00:00:00Z"));
        });
        table.add("removed line of events.jsonl", CHAIN, move |run| {
            pick_lines(&file(run), |mut lines| {
                lines.remove(place);
                lines
            });
        });
    }
    for place in 0..count {
        table.add("doubled line of events.jsonl", CHAIN, move |run| {
            pick_lines(&file(run), |mut lines| {
                lines.insert(place, lines[place]);
                lines
            });
        });
    }
    // Removes the end of the file and the folders mentioned there.
    for kept in 1..count - 1 {
        table.add("removed lines at the end of events.jsonl", CHAIN, move |run| {
            pick_lines(&file(run), |mut lines| {
                lines.truncate(kept);
                lines
            });
        });
    }
    for kept in 1..count - 3 {
        table.add("removed lines at the end of events.jsonl", CHAIN, move |run| {
            pick_lines(&file(run), |mut lines| {
                lines.truncate(kept);
                lines
            });
            fs::remove_dir_all(run.join("checkpoints")).unwrap();
            fs::remove_dir_all(run.join("model")).unwrap();
        });
    }
    table.add("removed lines at the end of events.jsonl", CHAIN, move |run| {
        pick_lines(&file(run), |mut lines| {
            lines.truncate(lines.len() - 2);
            lines
        });
        edit(&run.join("model/config.json"), |old| old.to_owned() + " ");
        write_manifest(&run.join("model")).unwrap();
    });
    for key in ["manifest", "folder", "kept", "ledger"] {
        table.add("key removed from events.jsonl", CHAIN, move |run| {
            edit_lines(&file(run), |lines| {
                for line in lines {
                    line.as_object_mut().unwrap().remove(key);
                }
            });
            link(&file(run));
        });
    }
    for (name, other) in [("step-3", "step-77"), ("step-2", "step-02"), ("step-1", "step-x")] {
        table.add("added checkpoint", &["checkpoints", "saved folders"], move |run| {
            let checkpoints = run.join("checkpoints");
            copy(&checkpoints.join(name), &checkpoints.join(other));
        });
    }
    for name in ["ledger.jsonl", "events.jsonl", "metrics.jsonl"] {
        for bytes in ["{\"step\":4,\"re", "\0\0\0"] {
            let found = &["chain of records", "metrics"];
            table.add("bytes after the last line", found, move |run| {
                edit(&run.join(name), |old| old.to_owned() + bytes);
            });
        }
    }
    table.add("deleted events.jsonl", CHAIN, move |run| fs::remove_file(file(run)).unwrap());
    table.add("deleted events.jsonl", CHAIN, move |run| fs::write(file(run), "").unwrap());
}

pub(crate) fn metrics(table: &mut Table) {
    const FOUND: &[&str] = &["metrics"];
    let file = |run: &Path| run.join("metrics.jsonl");
    for step in 0..3 {
        for name in ["reward", "kl", "grad_norm", "entropy", "learning_rate"] {
            table.add("changed metrics", FOUND, move |run| {
                edit_lines(&file(run), |lines| lines[step][name] = json!(0.123_456));
            });
        }
        table.add("added metric", FOUND, move |run| {
            edit_lines(&file(run), |lines| lines[step]["rewards/novel/mean"] = json!(1.0));
        });
        table.add("cut or doubled metrics", &["steps"], move |run| {
            pick_lines(&file(run), |mut lines| {
                lines.remove(step);
                lines
            });
        });
        table.add("cut or doubled metrics", &["steps"], move |run| {
            pick_lines(&file(run), |mut lines| {
                lines.insert(step, lines[step]);
                lines
            });
        });
    }
}

/// Changes to a run that was rolled back once and has evaluations.
pub(crate) fn roll_back(table: &mut Table) {
    const FOUND: &[&str] = &["saved folders"];
    const KIND: &str = "changed or deleted steps in rolled-back/";
    let aside = |run: &Path| run.join("rolled-back/1");
    table.add(KIND, FOUND, |run| fs::remove_dir_all(run.join("rolled-back")).unwrap());
    table.add(KIND, FOUND, move |run| {
        fs::rename(aside(run), run.join("rolled-back/2")).unwrap();
    });
    for name in ["metrics.jsonl", "ledger.jsonl", "manifest.json"] {
        table.add(KIND, FOUND, move |run| fs::remove_file(aside(run).join(name)).unwrap());
    }
    table.add(KIND, FOUND, move |run| fs::write(aside(run).join("added"), "").unwrap());
    table.add(KIND, FOUND, move |run| {
        edit_lines(&aside(run).join("metrics.jsonl"), |lines| lines[0]["reward"] = json!(0.5));
        write_manifest(&aside(run)).unwrap();
    });
    const ADDED: &str = "folder added to rolled-back/";
    for name in ["2", "01", "other"] {
        table.add(ADDED, FOUND, move |run| copy(&aside(run), &run.join("rolled-back").join(name)));
    }
    const BEST: &str = "another best evaluation, linked again";
    for (key, value) in [("best_step", json!(4)), ("best_step", json!(5)), ("reward", json!(0.99))]
    {
        table.add(BEST, &["metrics"], move |run| {
            edit_lines(&run.join("events.jsonl"), |lines| {
                let best = lines.iter_mut().find(|line| line["event"] == "best").unwrap();
                best[key] = match &value {
                    value if best[key] == *value => json!(8),
                    value => value.clone(),
                };
            });
            link(&run.join("events.jsonl"));
        });
    }
}

pub(crate) fn completions(table: &mut Table) {
    const FOUND: &[&str] = &["completion files"];
    fn falsify(run: &Path, step: u64, change: impl Fn(&mut CompletionRecord)) {
        let folder = RunFolder::open(run).unwrap();
        let mut records = folder.completions_of(step).unwrap();
        change(&mut records[3]);
        folder.write_completions(step, &records, &["valid", "qed", "sa"]).unwrap();
    }
    let file = |run: &Path, step: u64| run.join(format!("completions/step-{step}.parquet"));
    for step in 1..=3 {
        let changes: [fn(&mut CompletionRecord); 5] = [
            |record| record.text = "CCCCCCCC".to_owned(),
            |record| record.prompt_text = Some("another prompt".to_owned()),
            |record| record.reward = record.reward.map(|reward| reward + 0.25).or(Some(1.0)),
            |record| record.advantage = -record.advantage - 1.0,
            |record| {
                record.parts.insert("qed".to_owned(), 0.99);
            },
        ];
        for change in changes {
            table.add("changed completions", FOUND, move |run| falsify(run, step, change));
        }
        table.add("deleted completions", &["recorded completions"], move |run| {
            fs::remove_file(file(run, step)).unwrap();
        });
        table.add("added completions", FOUND, move |run| {
            fs::copy(file(run, step), run.join(format!("completions/step-0{step}.parquet")))
                .unwrap();
        });
        table.add("swapped completions", FOUND, move |run| {
            fs::copy(file(run, step % 3 + 1), file(run, step)).unwrap();
        });
    }
}

pub(crate) fn folders(table: &mut Table) {
    const SAVED: &[&str] = &["saved folders"];
    table.add("added adapter or model", SAVED, |run| {
        fs::create_dir(run.join("adapter")).unwrap();
    });
    let folders = ["checkpoints/step-1", "checkpoints/step-2", "checkpoints/step-3", "model"];
    for folder in folders {
        table.add("deleted checkpoint or model", SAVED, move |run| {
            fs::remove_dir_all(run.join(folder)).unwrap();
        });
        table.add("changed weights", &["checkpoints", "final model"], move |run| {
            flip_last_bit(&run.join(folder).join("model.safetensors"));
        });
        table.add("weights changed and their manifest remade", SAVED, move |run| {
            flip_last_bit(&run.join(folder).join("model.safetensors"));
            write_manifest(&run.join(folder)).unwrap();
        });
        for (key, value) in [("n_head", 4), ("n_head", 1)] {
            table.add("model configuration changed and its manifest remade", SAVED, move |run| {
                edit_json(&run.join(folder).join("config.json"), |config| {
                    assert!(config[key].is_number(), "{config}");
                    config[key] = json!(value);
                });
                write_manifest(&run.join(folder)).unwrap();
            });
        }
        table.add("vocabulary changed and its manifest remade", SAVED, move |run| {
            edit(&run.join(folder).join("vocabulary.json"), |old| {
                old.replacen("\"C\"", "\"\u{0}\"", 1).replacen("\"N\"", "\"C\"", 1).replacen(
                    "\"\u{0}\"",
                    "\"N\"",
                    1,
                )
            });
            write_manifest(&run.join(folder)).unwrap();
        });
        table.add("file added and the manifest remade", SAVED, move |run| {
            fs::write(run.join(folder).join("generation_config.json"), "{}").unwrap();
            write_manifest(&run.join(folder)).unwrap();
        });
    }
    for step in 1..=3 {
        let state = move |run: &Path| run.join(format!("checkpoints/step-{step}"));
        table.add("trainer state changed and its manifest remade", SAVED, move |run| {
            flip_last_bit(&state(run).join("trainer/optimizer.safetensors"));
            write_manifest(&state(run)).unwrap();
        });
    }
}

pub(crate) fn adapter(table: &mut Table) {
    const SAVED: &[&str] = &["saved folders"];
    for folder in ["adapter", "checkpoints/step-2", "checkpoints/step-3"] {
        for (key, value) in [("lora_alpha", json!(64)), ("use_rslora", json!(true))] {
            table.add("adapter settings changed and their manifest remade", SAVED, move |run| {
                edit_json(&run.join(folder).join("adapter_config.json"), |config| {
                    assert!(config.get(key).is_some(), "{config}");
                    config[key] = value.clone();
                });
                write_manifest(&run.join(folder)).unwrap();
            });
        }
    }
}

/// Changes to the input files of a run, which are in the same folder.
pub(crate) fn inputs(table: &mut Table) {
    const FOUND: &[&str] = &["inputs"];
    let base = |run: &Path| run.with_file_name("m");
    table.add("base configuration changed and its manifest remade", FOUND, move |run| {
        edit_json(&base(run).join("config.json"), |config| config["rope_theta"] = json!(5.0));
        if base(run).join("manifest.json").exists() {
            write_manifest(&base(run)).unwrap();
        }
    });
    table.add("base weights changed", &["base", "inputs"], move |run| {
        flip_last_bit(&base(run).join("model.safetensors"));
        if base(run).join("manifest.json").exists() {
            write_manifest(&base(run)).unwrap();
        }
    });
    for name in ["chat_template.jinja", "generation_config.json"] {
        table.add("file added to the base model", FOUND, move |run| {
            fs::write(base(run).join(name), "{}").unwrap();
        });
    }
    table.add("changed prompts", FOUND, move |run| {
        edit(&run.with_file_name("prompts.jsonl"), |old| old.replacen("two", "six", 1));
    });
}

fn edit(path: &Path, change: impl Fn(&str) -> String) {
    let old = fs::read_to_string(path).unwrap();
    let new = change(&old);
    assert_ne!(old, new, "{} was to be changed", path.display());
    fs::write(path, new).unwrap();
}

pub(crate) fn edit_json(path: &Path, change: impl Fn(&mut Value)) {
    edit(path, |old| {
        let mut value: Value = serde_json::from_str(old).unwrap();
        change(&mut value);
        serde_json::to_string_pretty(&value).unwrap() + "\n"
    });
}

pub(crate) fn edit_lines(path: &Path, change: impl Fn(&mut Vec<Value>)) {
    edit(path, |old| {
        let mut records = lines(old);
        change(&mut records);
        text(&records)
    });
}

/// Reorders, repeats or removes lines of a file without changing them.
fn pick_lines(path: &Path, pick: impl Fn(Vec<&str>) -> Vec<&str>) {
    edit(path, |old| pick(old.lines().collect()).iter().map(|line| format!("{line}\n")).collect());
}

/// Recomputes the hash chain as the program would.
fn link(path: &Path) {
    let mut previous = "0".repeat(64);
    let mut linked = String::new();
    let file = path.with_extension("line");
    for mut line in lines(&fs::read_to_string(path).unwrap()) {
        line["previous"] = json!(previous);
        fs::write(&file, line.to_string()).unwrap();
        previous = sha256_of_file(&file).unwrap();
        linked += &format!("{line}\n");
    }
    fs::remove_file(file).unwrap();
    fs::write(path, linked).unwrap();
}

fn flip_last_bit(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path, bytes).unwrap();
}
