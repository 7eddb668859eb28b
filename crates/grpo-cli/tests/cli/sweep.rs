//! `grpo sweep`.

use snapbox::str;

use crate::support::Place;

const SWEEP: [&str; 9] = [
    "sweep",
    "train.toml",
    "--seeds=2",
    "--set=loss.kl_coef=0.05,0.1",
    "--set=train.steps=2",
    "-o",
    "sweep",
    "--",
    "-n20",
];

#[test]
fn values_and_seeds_are_trained_and_compared() {
    let place = Place::for_training();
    let before = place.files();
    let checked = place.succeed(&[&SWEEP[..7], &["--check"], &SWEEP[7..]].concat());
    assert_eq!(place.files(), before);
    let lines: Vec<&str> = checked.stdout.lines().collect();
    assert_eq!(lines.len(), 8, "{}", checked.stdout);
    assert_eq!(
        lines[1],
        "kl_coef-0.05/seed-2 grpo train train.toml --set=loss.kl_coef=0.05 --set=train.steps=2 --set=seed=2 --set=run='sweep/kl_coef-0.05/seed-2'"
    );
    let ended = place.succeed(&SWEEP);
    assert!(ended.stdout.contains("kl_coef-0.05"), "{}", ended.stdout);
    let compared = place.read("sweep/comparison.md");
    assert!(compared.starts_with("| metric | kl_coef-0.05 | kl_coef-0.1 |\n"), "{compared}");
    assert_eq!(place.read("sweep/samples/kl_coef-0.1-seed-2.smi").lines().count(), 20);
    let config = place.read("sweep/kl_coef-0.1/seed-2/config.toml");
    assert!(config.contains("kl_coef = 0.1") && config.contains("seed = 2"), "{config}");

    // A deleted result is computed again, and the others are kept.
    std::fs::remove_file(place.path("sweep/samples/kl_coef-0.1-seed-2.smi")).unwrap();
    let again = place.succeed(&SWEEP);
    assert_eq!(again.stdout.matches(" reused ").count(), 7, "{}", again.stdout);
    assert_eq!(place.read("sweep/comparison.md"), compared);

    place.refuse(
        &["sweep", "train.toml", "-o", "sweep"],
        str!["sweep/sweep.toml is from a sweep with other options; choose another folder with -o, or delete this one"],
    );
    place.refuse(
        &["sweep", "train.toml", "--set", "loss.beta=1", "-o", "other"],
        str!["[..]unknown key 'loss.beta'[..]"],
    );
    place.refuse(
        &["sweep", "train.toml", "--seeds", "0", "-o", "other"],
        str!["--seeds 0: expected a number of seeds, e.g. 3, or seeds separated by commas, e.g. 42,123,456"],
    );
}
