//! Messages in the words of users, and processes under tight limits.

use std::process::Command;

use crate::support::{Ended, Place};

/// Words that only programmers of this program know.
const FOREIGN: [&str; 26] = [
    "variant",
    "i128",
    "u64",
    "u32",
    "i64",
    "usize",
    "f64",
    "panicked",
    "serde",
    "invalid digit",
    "invalid float",
    "Utf8Error",
    "ParseInt",
    "expected ident",
    "expected struct",
    "expected a map",
    "expected a sequence",
    "expected string or map",
    "untagged enum",
    "invalid length",
    "invalid type",
    "(os error",
    "CSV error",
    "Parquet error",
    "EmptyVocabulary",
    "RUST_BACKTRACE",
];

#[track_caller]
fn assert_plain(ended: &Ended, what: &str, expected: &str) {
    assert!(matches!(ended.code, Some(1 | 2)), "{what}: {:?} {}", ended.code, ended.stderr);
    assert!(ended.stderr.contains(expected), "{what}: {}", ended.stderr);
    let word = FOREIGN.iter().find(|word| ended.stderr.contains(**word));
    assert_eq!(word, None, "{what}: {}", ended.stderr);
    let longest = ended.stderr.split(|c: char| !c.is_ascii_digit()).map(str::len).max();
    assert!(longest < Some(40), "{what}: {}", ended.stderr);
}

#[test]
fn settings_of_the_wrong_kind_are_answered_in_plain_words() {
    let place = Place::for_training();
    for (set, expected) in [
        ("loss.preset=GRPO", "unknown value `GRPO`, expected one of `grpo`"),
        ("seed=18446744073709551616", "the number has too many digits"),
        ("seed=-170141183460469231731687303715884105729", "the number has too many digits"),
        ("train.steps=9223372036854775807", "found 9223372036854775807; expected a smaller whole"),
        ("train.steps=1.5", "found 1.5; expected a whole number"),
        ("train.steps=nan", "expected a whole number"),
        ("train.steps=[1]", "found a list; expected a whole number"),
        ("train.steps={a=1}", "found a table; expected a whole number"),
        ("optimizer.betas=[0.9]", "expected a list of 2"),
        ("optimizer.betas=0.9", "found 0.9; expected a list of 2"),
        ("guards=5", "found 5; expected a list"),
        ("reward.type=5", "found 5; expected a string"),
        ("reward=5", "found 5; expected a table"),
        ("loss.kl_coef=-1e308", "loss.kl_coef"),
        ("run=", "`` cannot be a run folder: it is empty"),
        ("run=/", "cannot be a run folder: it does not end in the name of a folder"),
        ("run=\"a\\u0000b\"", "cannot be a run folder: it contains a NUL character"),
        ("model=\"\"", "model: `` is not a path"),
        ("model=\"a\\u0000b\"", "is not a path"),
    ] {
        let ended = place.run(&["train", "train.toml", "--check", "--set", set]);
        assert_plain(&ended, set, expected);
    }
    let long = format!("run={}", "a".repeat(5000));
    let ended = place.run(&["train", "train.toml", "--check", "--set", &long]);
    assert_plain(&ended, "a long name", "it is too long");
    let big = place.run(&["train", "train.toml", "--check", "--set", "loss.kl_coef=1e308"]);
    assert!(big.stdout.contains("loss.kl_coef = 1e308 (usual"), "{}", big.stdout);
    place.write("big.toml", "extends = \"train.toml\"\nseed = 18446744073709551616\n");
    let ended = place.run(&["train", "big.toml", "--check"]);
    assert_plain(&ended, "seed", "found 18446744073709551616; expected a smaller whole number");
}

#[test]
fn published_names_are_answered_with_the_key_that_is_meant() {
    let place = Place::for_training();
    for (set, expected) in [
        ("kl_beta=0.1", "unknown key 'kl_beta'; it is called 'loss.kl_coef' here"),
        ("beta=0.1", "'loss.kl_coef'"),
        ("epsilon=0.2", "'loss.epsilon_low'"),
        ("n_generations=8", "'train.group_size'"),
        ("num_generations=8", "'train.group_size'"),
        ("group_size=8", "'train.group_size'"),
        ("lr=0.1", "'optimizer.learning_rate'"),
        ("max_length=8", "'sampling.max_new_tokens'"),
        ("model_name_or_path=m", "'model'"),
        ("train.lr=0.1", "unknown key 'train.lr'; it is called 'optimizer.learning_rate' here"),
        ("train.num_generations=8", "'train.group_size'"),
        ("optimizer.lr=0.1", "'optimizer.learning_rate'"),
        ("loss.beta=0.1", "'loss.kl_coef'"),
        ("sampling.max_tokens=3", "'sampling.max_new_tokens'"),
        ("train.stepz=3", "did you mean 'steps'?"),
    ] {
        let ended = place.run(&["train", "train.toml", "--check", "--set", set]);
        assert_plain(&ended, set, expected);
    }
}

#[test]
fn options_of_the_wrong_kind_are_answered_in_plain_words() {
    let place = Place::new();
    for (arguments, expected) in [
        (["sample", "--model", "m", "-n", "nan"], "it is not a whole number"),
        (["sample", "--model", "m", "-n", ""], "it is empty"),
        (["sample", "--model", "m", "-n", "1.5"], "it is not a whole number"),
        (["sample", "--model", "m", "-n", "99999999999999999999"], "the number is too large"),
        (["sample", "--model", "m", "--seed", "x"], "it is not a whole number"),
        (["sample", "--model", "m", "--temperature", "x"], "it is not a number"),
        (["sample", "--model", "m", "--threads", "x"], "it is not a whole number"),
    ] {
        assert_plain(&place.run(&arguments), &format!("{arguments:?}"), expected);
    }
}

#[test]
fn passwords_are_neither_printed_nor_recorded() {
    let place = Place::for_training();
    let url = "http://user:s3cret@host:1/score";
    let reward = format!("reward={{type=\"http\",url=\"{url}\",invalid=\"send\"}}");
    let rollout = format!("rollout={{engine=\"vllm\",url=\"{url}\"}}");
    place.write("a.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
    for arguments in [
        vec!["train", "train.toml", "--set", &reward],
        vec!["train", "train.toml", "--check", "--set", &reward],
        vec!["train", "train.toml", "--check", "--set", &rollout],
        vec!["judge", "--endpoint", url, "--model", "x", "a.jsonl"],
        vec!["train", "train.toml", "--no-such-option", url],
        vec!["report", url],
    ] {
        let ended = place.run(&arguments);
        assert_ne!(ended.code, Some(0), "{arguments:?}");
        let shown = ended.stderr + &ended.stdout;
        assert!(!shown.contains("s3cret"), "{arguments:?}: {shown}");
    }
    let set = format!("success={{max_kl=5}}#{url}");
    let _any = place.run(&["train", "train.toml", "--set", "train.steps=1", "--set", &set]);
    for (path, _) in place.files() {
        let bytes = std::fs::read(place.path(".").join(&path)).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains("s3cret"), "{}", path.display());
    }
}

#[test]
fn a_run_that_is_shorter_than_its_warmup_is_the_beginning_of_a_longer_one() {
    let place = Place::for_training();
    let sets = ["train.steps=2", "schedule.warmup_steps=125"];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let note = "schedule.warmup_steps = 125 is longer than the run of 2 steps, so the learning rate only reaches 1.6 % of optimizer.learning_rate";
    for more in [&["--check"][..], &[]] {
        let ended = place.succeed(&[&["train", "train.toml"], &sets[..], more].concat());
        assert!(ended.stdout.contains(note), "{}", ended.stdout);
    }
}

#[test]
fn tables_with_an_open_quote_are_refused_by_all_readers() {
    let place = Place::new();
    for (text, expected) in [
        ("smiles\nCCO\n\"CC\nC\nCCC\n", "line 3 of `a.csv` has an unterminated quoted field"),
        ("smiles\n\"CC\"C\n", "line 2 of `a.csv` has text after a quoted field"),
        ("smiles,x\nCC\n", "line 2 of `a.csv` has 1 field, but the header has 2"),
    ] {
        place.write("a.csv", text);
        for command in ["eval", "describe"] {
            assert_plain(&place.run(&[command, "a.csv"]), command, expected);
        }
    }
    place.write("a.csv", format!("smiles\n{}\n", "C".repeat(2_000_000)));
    for command in ["eval", "describe"] {
        assert_plain(&place.run(&[command, "a.csv"]), command, "the record is longer than 1 MiB");
    }
}

/// Runs the program in a shell that sets limits first.
#[cfg(target_os = "linux")]
fn limited(place: &Place, before: &str, arguments: &str) -> Ended {
    let script = format!("{before}; exec {} {arguments}", env!("CARGO_BIN_EXE_grpo"));
    Ended::of_command(Command::new("sh").arg("-c").arg(script).current_dir(place.path(".")))
}

#[test]
#[cfg(target_os = "linux")]
fn limits_of_the_process_end_it_with_an_error() {
    let place = Place::for_training();
    place.write("a.smi", "CCO\n");
    let ends_with_an_error = |before: &str, arguments: &str, expected: &str| {
        let ended = limited(&place, before, arguments);
        assert_plain(&ended, before, expected);
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: "), "{before}: {}", ended.stderr);
    };
    ends_with_an_error("ulimit -s 64", "describe a.smi", "the stack is limited to 64 KiB");
    let variable = "RUST_MIN_STACK sets a stack of 1 bytes";
    ends_with_an_error("export RUST_MIN_STACK=1", "describe a.smi", variable);
    // An error of the system is neither damage nor a missing file.
    place.succeed(&["train", "train.toml"]);
    for limit in 5..14 {
        for command in ["report run -o r.html", "audit run", "describe a.smi", "init-project new"] {
            let before = format!("ulimit -n {limit}");
            ends_with_an_error(&before, command, "the limit on open files is too low");
            assert!(!place.path("r.html").exists() && !place.path("new").exists(), "{before}");
        }
    }
    // The smallest address space that the system can load the program into, and a little more.
    let limits = (1..40).map(|step| step * 50_000);
    let is_loaded = |limit: &usize| {
        limited(&place, &format!("ulimit -v {limit}"), "--version --threads 2").code == Some(0)
    };
    let least = limits.into_iter().find(is_loaded).expect("the program needs less than 2 GB");
    for more in [0, 20_000, 60_000, 120_000] {
        let before = format!("ulimit -v {}", least + more);
        let ended = limited(&place, &before, "train train.toml --threads 2 --set train.steps=1");
        if ended.code != Some(0) {
            assert_plain(&ended, &before, "error: ");
        }
    }
}

/// A chat template is not to blame if the threads that render it cannot be started.
#[test]
#[cfg(target_os = "linux")]
fn a_lack_of_memory_is_not_blamed_on_the_chat_template() {
    let place = Place::new();
    place.write("a.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/replies/model");
    let command = format!("logprob --model {model} --input a.jsonl --threads 1");
    let mut said = Vec::new();
    for limit in [600_000, 800_000, 1_000_000, 1_200_000] {
        let ended = limited(&place, &format!("ulimit -v {limit}"), &command);
        assert!(!ended.stderr.contains("cannot be rendered"), "{limit}: {}", ended.stderr);
        said.push(ended.stderr);
    }
    let expected =
        "memory or the number of processes is limited; raise the limit (ulimit -v or -u)";
    assert!(said.iter().any(|said| said.contains(expected)), "{said:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_closed_standard_output_is_an_error() {
    let place = Place::new();
    place.write("a.smi", "CCO\n");
    for arguments in ["describe a.smi", "--help", "--version", "devices", "completions bash"] {
        let ended = limited(&place, "exec >&-", arguments);
        let expected = "cannot write to standard output (it is closed)";
        assert_plain(&ended, arguments, expected);
    }
    let ended = limited(&place, "exec >&-", "describe a.smi -o a.csv --quiet");
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
}

/// Skipped where `faketime` is not installed.
#[test]
#[cfg(target_os = "linux")]
fn a_clock_before_1970_is_no_error() {
    let place = Place::for_training();
    let script = format!(
        "command -v faketime >/dev/null || exit 77; faketime '1969-12-31 23:00:00' {} train train.toml --set train.steps=1",
        env!("CARGO_BIN_EXE_grpo")
    );
    let mut shell = Command::new("sh");
    let shell = shell.arg("-c").arg(script).current_dir(place.path(".")).env("TZ", "UTC");
    let ended = Ended::of_command(shell);
    if ended.code == Some(77) {
        return;
    }
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let info = place.read("run/run.json");
    assert!(info.contains("\"started\": \"1969-12-31T23:00:"), "{info}");
}

#[test]
fn names_and_links_that_the_system_refuses() {
    let place = Place::for_training();
    let long = "x".repeat(300);
    for name in ["circle", "circle.smi"] {
        std::os::unix::fs::symlink(name, place.path(name)).unwrap();
    }
    let (too_long, circle) = (
        "is too long; use a shorter one",
        "links lead in a circle; remove one of them, or use another path",
    );
    place.write("a.smi", "CCO\n");
    for (arguments, expected) in [
        (&["init-project", &long][..], too_long),
        (&["init-project", "circle/x"], circle),
        (&["describe", "a.smi", "-o", &long], too_long),
        (&["describe", &format!("{long}.smi")], too_long),
        (&["describe", "circle.smi"], circle),
        (&["describe", "a.smi", "-o", "circle/x.csv"], "the folder circle does not exist"),
        (&["fill", "model", "--text", "a", "--blank", "ab"], "it has 2 characters; expected one"),
        (&["fill", "model", "--text", "a", "--blank", ""], "it has 0 characters; expected one"),
    ] {
        let ended = place.run(arguments);
        let first = ended.stderr.lines().next().unwrap_or_default();
        let is_plain = !["os error", "File name", "Too many", "free some space", "in string"]
            .iter()
            .any(|word| ended.stderr.contains(word));
        assert!(
            first.matches(expected).count() == 1 && is_plain && ended.code != Some(0),
            "{arguments:?}: {}",
            ended.stderr
        );
    }
}

/// A header of a table is quoted in part only.
#[test]
fn long_values_of_files_are_not_echoed() {
    let place = Place::for_training();
    place.write("one.csv", format!("{}\nCCO\n", "x".repeat(300_000)));
    place.write("many.csv", format!("{}\nCCO\n", "x,".repeat(150_000)));
    place.write("twice.csv", format!("{0},{0}\nCCO,C\n", "x".repeat(100_000)));
    place.write("key.jsonl", format!("{{\"{}\": 1}}\n", "k".repeat(300_000)));
    for file in ["one.csv", "many.csv", "twice.csv", "key.jsonl"] {
        for command in [
            &["bench-pmo", "--score", file][..],
            &["score", "train.toml", file],
            &["describe", file],
            &["eval", file],
            &["best", file],
        ] {
            let ended = place.run(command);
            assert_ne!(ended.code, Some(0), "{command:?}");
            assert!(ended.stderr.len() < 5000, "{command:?}: {} bytes", ended.stderr.len());
        }
    }
}
