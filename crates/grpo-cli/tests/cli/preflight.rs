//! Checks before training.

use snapbox::str;

use crate::support::Place;

const SHORT: [&str; 6] =
    ["train", "train.toml", "--set", "eval.samples=0", "--set", "train.steps=1"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SHORT[..], more].concat()
}

#[test]
fn prints_a_forecast_before_training() {
    let place = Place::for_training();
    let said = place.succeed(&SHORT).stdout;
    // A step has two groups of four completions.
    let trial = said.lines().find(|line| line.starts_with("trial        8 completions, "));
    let trial = trial.unwrap_or_else(|| panic!("{said}"));
    assert!(
        trial.contains(" distinct: rewards 0.") && trial.ends_with(" cut at max_new_tokens = 20"),
        "{trial}"
    );
    let memory = said.lines().find(|line| line.starts_with("memory       about "));
    assert!(memory.is_some_and(|line| line.ends_with(" available")), "{said}");
    let disk = said.lines().find(|line| line.starts_with("disk         about "));
    assert!(
        disk.is_some_and(|line| line.contains(" MB will be written, ") && line.ends_with(" free")),
        "{said}"
    );
    // The model is too small for any usual learning rate.
    let of_rate = |line: &&str| line.starts_with("warning: optimizer.learning_rate = ");
    let warnings: Vec<&str> = said.lines().filter(|line| line.contains("warning")).collect();
    assert!(warnings.iter().all(of_rate), "{said}");

    // The trial batch affects neither random numbers nor weights.
    let without =
        place.succeed(&with(&["--run", "without", "--set", "preflight.samples=0"])).stdout;
    assert!(!without.contains("trial "), "{without}");
    let times = |text: String| text.split(",\"step_time\"").next().unwrap().to_owned();
    assert_eq!(times(place.read("run/metrics.jsonl")), times(place.read("without/metrics.jsonl")));
    let one = place.succeed(&with(&["--run", "one", "--set", "preflight.samples=1"])).stdout;
    assert!(one.contains("trial        1 completion, 1 distinct"), "{one}");
}

#[test]
fn a_trial_warns_of_rewards_and_lengths() {
    let place = Place::for_training();
    let constant = [
        "--set",
        "reward={type=\"pattern\", pattern=\"zz\"}",
        "--set",
        "sampling.max_new_tokens=1",
    ];
    let said = place.succeed(&with(&constant)).stdout;
    let equal = "warning: all 8 rewards of the trial are 0, so the policy cannot learn; check [reward], or start from a policy that sometimes succeeds\n";
    assert!(said.contains(equal), "{said}");
    let cut = " of 8 trial completions were truncated at sampling.max_new_tokens = 1\n";
    assert!(said.contains(cut), "{said}");

    // Only one completion has a score.
    let one = "def reward(completions, **_):\n    return [0.5] + [None] * (len(completions) - 1)\n";
    place.write("one.py", one);
    let one = "reward={type=\"python\", file=\"one.py\", invalid=\"send\"}";
    let said = place.run(&with(&["--set", one, "--run", "one"])).stdout;
    let few = "warning: the reward gave no score for 7 of 8 trial completions, so the policy cannot learn from them; check [reward]\n";
    assert!(said.contains(few), "{said}");

    // Rewards that differ, but by a standard deviation of less than 0.01.
    let part = |name: &str, weight: f64, pattern: &str| {
        format!(
            "{{name=\"{name}\", weight={weight}, reward={{type=\"pattern\", pattern=\"{pattern}\"}}}}"
        )
    };
    let parts = format!("[{}, {}]", part("most", 0.999, "zz"), part("least", 0.001, "N"));
    let small = format!("reward={{type=\"composite\", parts={parts}}}");
    let said = place.succeed(&with(&["--set", &small, "--run", "small"])).stdout;
    let hardly = "warning: the rewards of the trial hardly differ (standard deviation ";
    assert!(said.contains(hardly), "{said}");
}

/// The answers of the records, and how many groups can have a signal.
#[test]
fn a_trial_warns_of_answers_that_no_completion_can_give() {
    let place = crate::training_texts::place("llama");
    let prompts = |answer: &str| {
        format!("{{\"prompt\": \"How many?\", \"answer\": \"{answer}\"}}\n").repeat(4)
    };
    place.write("seven.jsonl", prompts("seven eggs"));
    place.write("gsm8k.jsonl", prompts("She has 1,080 eggs.\\n#### 1,080"));
    place.write("plain.jsonl", prompts("1,080"));
    let reward = "reward={type=\"answer\",extract='#### (-?[\\d,.]+)'}";
    for (file, warns) in [("seven", true), ("gsm8k", false), ("plain", false)] {
        let data = format!("data.file={file}.jsonl");
        let said = place.succeed(&with(&["--set", reward, "--set", &data, "--run", file])).stdout;
        let warning = " trial prompts: reward.extract = \"#### (-?[\\\\d,.]+)\" finds nothing in the answer \"seven eggs\" of the prompt's record (field 'answer')";
        assert_eq!(said.contains(warning), warns, "{file}: {said}");
    }
}

#[test]
fn refuses_a_run_that_does_not_fit_into_memory() {
    let place = Place::for_training();
    let large = [
        "--set",
        "train.group_size=1000000",
        "--set",
        "train.prompts_per_step=1",
        "--set",
        "train.micro_batch_tokens=1000000000",
        // All completions are assumed to have 20 tokens. The 74 GB needed exceed the memory of most
        // machines.
        "--set",
        "preflight.samples=0",
    ];
    let ended = place.run(&with(&large));
    assert_eq!(ended.code, Some(1));
    let (begin, end) = (
        "error: training needs about ",
        "lower train.micro_batch_tokens, or set train.activation_checkpointing, or start anyway with --set preflight.ignore_memory=true\n",
    );
    assert!(ended.stderr.starts_with(begin) && ended.stderr.ends_with(end), "{}", ended.stderr);
    assert!(!place.path("run").exists());
    place.refuse(
        &with(&["--set", "preflight.samples=1000001"]),
        str!["--set preflight.samples=1000001: preflight.samples = 1000001 is out of range; expected 0 to 1000000"],
    );
}
