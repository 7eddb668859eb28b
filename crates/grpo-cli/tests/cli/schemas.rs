//! The schemas in `configs/schema/`, the tables of docs/configuration.md and those of docs/metrics.md follow from
//! the code, and the shipped configurations name the schema that describes them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Place, TASKS, metric_table};

/// If this variable is set, the tests write the files instead of comparing them.
const WRITE: &str = "GRPO_WRITE_SCHEMAS";

const PAGE: &str = "docs/configuration.md";
const METRICS: &str = "docs/metrics.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn schemas() -> Vec<(String, Value)> {
    grpo_program::schema::schemas(TASKS)
}

/// Compares a file with what it should contain, or writes it.
#[track_caller]
fn is_up_to_date(path: &str, expected: &str) {
    let file = root().join(path);
    if std::env::var_os(WRITE).is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, expected).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(found == expected, "{path} is out of date; run `cargo xtask config-reference`");
}

#[test]
fn schemas_and_reference_follow_from_the_types() {
    let schemas = schemas();
    for (name, schema) in &schemas {
        let text = serde_json::to_string_pretty(schema).unwrap() + "\n";
        is_up_to_date(&format!("configs/schema/{name}.json"), &text);
    }
    let names = schemas.iter().map(|(name, _)| format!("{name}.json"));
    let files = fs::read_dir(root().join("configs/schema")).unwrap();
    let files: BTreeSet<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(files, names.collect());
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    is_up_to_date(PAGE, &grpo_examples::with_keys(&page, schemas).unwrap());
    let page = fs::read_to_string(root().join(METRICS)).unwrap();
    is_up_to_date(METRICS, &grpo_metrics::with_metrics(&page, &metric_table()).unwrap());
}

/// Meanings are shown to users: they name keys and values, not items of the program, and their links are
/// whole.
#[test]
fn meanings_are_whole_and_name_no_rust_items() {
    fn visit(value: &Value, check: &mut dyn FnMut(&str)) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| visit(value, check)),
            Value::Object(object) => {
                object.get("description").and_then(Value::as_str).into_iter().for_each(&mut *check);
                object.values().for_each(|value| visit(value, check));
            }
            _ => {}
        }
    }
    // Names in other programs.
    const OTHERS: [&str; 2] = ["ReduceLROnPlateau", "ExternalProcess"];
    let is_item = |code: &str| {
        let is_name = code.chars().all(|c| c.is_ascii_alphanumeric());
        let capitals = code.chars().filter(char::is_ascii_uppercase).count();
        let is_camel = is_name
            && code.starts_with(|c: char| c.is_ascii_uppercase())
            && capitals > 1
            && code.chars().any(|c| c.is_ascii_lowercase());
        code.contains("::") || (is_camel && !OTHERS.contains(&code))
    };
    let mut count = 0;
    for (name, schema) in schemas() {
        visit(&schema, &mut |meaning| {
            count += 1;
            for [open, close] in [['[', ']'], ['(', ')']] {
                let of = |wanted: char| meaning.chars().filter(|c| *c == wanted).count();
                assert_eq!(of(open), of(close), "{name}: {meaning}");
            }
            let spans: Vec<&str> = meaning.split('`').collect();
            assert_eq!(spans.len() % 2, 1, "{name}: {meaning}");
            let mut codes = spans.iter().skip(1).step_by(2);
            assert!(!codes.any(|code| is_item(code)), "{name}: {meaning}");
            for word in ["serde", "struct variant", "::"] {
                assert!(!meaning.contains(word), "{name}: {meaning}");
            }
        });
    }
    assert!(count > 300, "{count}");
}

/// Calls `check` with each configuration that is shipped.
fn for_each_configuration(mut check: impl FnMut(&str, &str)) {
    let mut count = 0;
    for folder in ["molecules", "text", "replies", "infill"] {
        for file in fs::read_dir(root().join("configs").join(folder)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            check(&path.display().to_string(), &fs::read_to_string(&path).unwrap());
            count += 1;
        }
    }
    assert!(count > 30, "only {count} configurations were found");
}

/// Editors read the first line.
#[test]
fn configurations_name_their_schemas() {
    let schemas = schemas();
    for_each_configuration(|path, text| {
        let name =
            text.strip_prefix("#:schema ../schema/").and_then(|text| text.split_once(".json\n"));
        let (name, _) = name.unwrap_or_else(|| panic!("{path} names no schema in its first line"));
        let schema = schemas.iter().find(|(known, _)| known == name);
        let (_, schema) = schema.unwrap_or_else(|| panic!("{path}: there is no schema `{name}`"));
        let keys: toml::Table = text.parse().unwrap();
        for key in keys.keys() {
            assert!(schema["properties"].get(key).is_some(), "{path}: {key} is not in `{name}`");
        }
    });
}

/// Keys that each file has, as examples of all that is registered.
#[test]
fn registered_kinds_are_in_the_schema() {
    let schemas = schemas();
    let train = &schemas.iter().find(|(name, _)| name == "train").unwrap().1;
    let of = |definition: &str, key: &str| {
        let found = train["definitions"][definition]["properties"].get(key);
        assert!(found.is_some(), "{definition}.{key}");
        found.unwrap().clone()
    };
    // An extension, with a section and with a key of another section; a source; a data format.
    for section in ["combined", "replay", "diversity_filter", "passages", "conditions"] {
        assert!(train["properties"].get(section).is_some(), "{section}");
    }
    for key in ["staleness", "max_reward_calls", "epochs"] {
        of("TrainConfig", key);
    }
    of("Data", "replies");
    assert_eq!(of("Rollout", "engine")["enum"], serde_json::json!(["local", "vllm"]));
    let forms = train["definitions"]["Reward"]["oneOf"].as_array().unwrap();
    let types: Vec<&str> =
        forms.iter().filter_map(|form| form["properties"]["type"]["const"].as_str()).collect();
    for name in ["answer", "molecule", "components", "infill", "hybrid", "http"] {
        assert!(types.contains(&name), "{types:?}");
    }
    let steps = of("TrainConfig", "steps");
    assert_eq!((&steps["minimum"], &steps["x-basic"]), (&1.into(), &true.into()), "{steps}");
}

#[test]
fn keys_are_explained() {
    let place = Place::new();
    let explained = place.succeed(&["config", "train.group_size"]).stdout;
    assert!(explained.contains("train.group_size   grpo train\n"), "{explained}");
    assert!(explained.contains("integer; required; range 2 to 1e6\n"), "{explained}");
    let basic = place.succeed(&["config"]).stdout;
    assert!(basic.contains("  train.steps "), "{basic}");
    assert!(!basic.contains("train.reward_time_limit"), "{basic}");
    let all = place.succeed(&["config", "--all"]).stdout;
    assert!(all.contains("train.reward_time_limit"), "{all}");
    assert!(all.lines().count() > 2 * basic.lines().count(), "{all}");
    let section = place.succeed(&["config", "diversity_filter"]).stdout;
    assert!(section.contains("[diversity_filter]   grpo train\n"), "{section}");
    place.refuse(
        &["config", "train.step"],
        "no configuration file has the key 'train.step'; did you mean 'train.steps'?",
    );
    let without_section = place.run(&["config", "group_size"]);
    assert_ne!(without_section.code, Some(0));
    assert!(without_section.stderr.contains("train.group_size"), "{}", without_section.stderr);
}

#[test]
fn schemas_are_printed() {
    let place = Place::new();
    let printed = place.succeed(&["config", "--schema"]).stdout;
    let schema: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(schema["title"], "grpo train");
    let printed = place.succeed(&["config", "--schema", "pretrain-infiller"]).stdout;
    let schema: Value = serde_json::from_str(&printed).unwrap();
    assert!(schema["properties"].get("masked_lm").is_some());
    place.refuse(
        &["config", "--schema", "trian"],
        "--schema trian: no configuration file has this name; did you mean 'train'?",
    );
}
