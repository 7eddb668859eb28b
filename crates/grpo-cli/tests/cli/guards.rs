//! Settings of guards, reference updates and adaptive KL coefficients.

use snapbox::{IntoData, str};

use crate::support::Place;
use crate::training_texts;

/// Appends lines to `train.toml`. The first of them has line number 31.
fn place(lines: &str) -> Place {
    let place = Place::for_training();
    let text = place.read("train.toml");
    assert_eq!(text.lines().count(), 30);
    place.write("train.toml", format!("{text}{lines}"));
    place
}

#[track_caller]
fn refused(lines: &str, expected: impl IntoData) {
    place(lines).refuse(&["train", "train.toml"], expected);
}

#[test]
fn reports_an_invalid_guard_with_its_line() {
    let sound = "[[guards]]\nwatch = \"kl\"\nabove = 1.0\naction = \"stop\"\n\n";
    refused(
        &format!("{sound}[[guards]]\nwatch = \"entrpy\"\nbelow = 0.1\naction = \"warn\"\n"),
        str![[
            r#"train.toml:37: guards[1]: watch = "entrpy" is not a metric that a guard can watch; did you mean 'entropy'? `not_finite` watches all of them for NaN and infinity"#
        ]],
    );
    refused(
        &format!("{sound}[[guards]]\nwatch = \"step_time\"\nabove = 60\naction = \"warn\"\n"),
        str![[
            r#"train.toml:37: guards[1]: watch = "step_time" depends on the machine and cannot control a run; watch a metric that is reproducible with the same seed"#
        ]],
    );
    refused(
        &format!(
            "{sound}[[guards]]\nwatch = \"kl\"\nabove = 1.0\naction = \"warn\"\nkl_coef_factor = 2.0\n"
        ),
        str![[
            r#"train.toml:40: guards[1]: kl_coef_factor is only valid with action = "roll_back"; remove it"#
        ]],
    );
    place("[[guards]]\nwatch = \"eval_reward\"\nbelow = 0.1\naction = \"stop\"\n").refuse(
        &["train", "train.toml", "--set", "eval.every=0"],
        "train.toml:32: guards[0]: watch = \"eval_reward\": this run has no such metric; it requires eval.every",
    );
    refused(
        "[[guards]]\nwatch = \"kl\"\nabov = 1.0\naction = \"warn\"\n",
        str!["train.toml:33: unknown key 'guards[0].abov'; did you mean 'above'?"],
    );
    refused(
        "[[guards]]\nwatch = \"kl\"\nabove = 1.0\naction = \"halt\"\n",
        str![
            "train.toml:34: guards[0].action: unknown value `halt`, expected one of `warn`, `stop`, `roll_back`"
        ],
    );
}

#[test]
fn a_run_writes_its_guards_down() {
    let place = Place::for_training();
    let short =
        ["train", "train.toml", "--set", "eval.samples=0", "--set", "train.steps=1", "--run"];
    place.succeed(&[&short[..], &["usual"]].concat());
    let text = place.read("usual/config.toml");
    assert_eq!(text.matches("[[guards]]").count(), 9, "{text}");
    assert!(
        text.contains(
            "[[guards]]\nwatch = \"not_finite\"\nsteps = 1\nfrom_step = 1\naction = \"stop\"\n"
        ),
        "{text}"
    );
    place.succeed(&[&short[..], &["none", "--set", "guards=[]"]].concat());
    assert!(place.read("none/config.toml").contains("guards = []"));
    let back = "guards=[{watch=\"kl\", above=9, action=\"roll_back\"}]";
    place.succeed(&[&short[..], &["back", "--set", back]].concat());
    let text = place.read("back/config.toml");
    assert!(text.contains("learning_rate_factor = 0.5\nkl_coef_factor = 1.0\n"), "{text}");
    // The recorded configuration is valid.
    place.succeed(&["train", "back/config.toml", "--run", "again"]);
}

#[test]
fn reports_an_invalid_controller_with_its_line() {
    refused(
        "[kl_controller]\ntarget = 0.0\nhorizon = 100\n",
        str![
            "train.toml:32: kl_controller.target = 0 is out of range; it must be above 0 and finite"
        ],
    );
    refused(
        "[kl_controller]\ntarget = 0.1\nhorizon = 7\n",
        str![
            "train.toml:33: kl_controller.horizon = 7 is less than the 8 completions per step; use a horizon of several steps to avoid oscillation"
        ],
    );
    refused(
        "[kl_controller]\ntarget = 0.1\nhorizon = 100\nmin = 0.1\n",
        str![
            "train.toml:34: this key was removed, so delete it: kl_controller.min (it is 0.00001)"
        ],
    );
}

#[test]
fn reports_an_invalid_reference_with_its_line() {
    refused(
        "[reference]\nmix = 0.5\n",
        str![
            "train.toml:32: reference.mix has no effect on a fixed reference; add reference.every_steps or reference.every_epochs, or remove it"
        ],
    );
    refused(
        "[reference]\nevery_steps = 2\nevery_epochs = 1\n",
        str![
            "train.toml:33: reference.every_steps and reference.every_epochs cannot be combined; remove one of them"
        ],
    );
    refused(
        "[reference]\nevery_epochs = 1\n",
        str![
            "train.toml:32: reference.every_epochs requires a file of prompts or conditions, because an epoch is one pass over that file; add one, or use reference.every_steps"
        ],
    );
    refused(
        "[reference]\nevery_steps = 2\nmix = 2\n",
        str!["train.toml:33: reference.mix = 2 is out of range; expected 0.000001 to 1"],
    );
}

/// With two prompts per step and three in the file, epochs end in the second and third step.
#[test]
fn a_reference_follows_by_passes_over_the_prompts() {
    let place = training_texts::place("llama");
    for from in ["start", "base"] {
        let from_key = format!("reference.from={from}");
        let arguments = [
            "train",
            "train.toml",
            "--run",
            from,
            "--set",
            &from_key,
            "--set",
            "reference.every_epochs=1",
            "--set",
            "reward.pattern=e",
            "--set",
            "train.steps=5",
        ];
        place.succeed(&arguments);
        let metrics = place.read(&format!("{from}/metrics.jsonl"));
        let line = |line: &str| -> serde_json::Value { serde_json::from_str(line).unwrap() };
        let lines: Vec<_> = metrics.lines().map(line).collect();
        let ages: Vec<_> =
            lines.iter().map(|line| line["reference_age"].as_i64().unwrap()).collect();
        assert_eq!(ages, [0, 1, 0, 0, 1]);
        let is_there: Vec<bool> =
            lines.iter().map(|line| line["kl"].as_f64().unwrap() < 1e-10).collect();
        assert_eq!(is_there, [true, false, true, true, false], "{metrics}");
        let text = place.read(&format!("{from}/config.toml"));
        assert!(
            text.contains(&format!(
                "[reference]\nfrom = \"{from}\"\nevery_epochs = 1\nmix = 1.0\n"
            )),
            "{text}"
        );
    }
}
