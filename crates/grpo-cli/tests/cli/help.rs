//! The help of the program.

use crate::support::Place;

#[test]
fn the_list_of_commands_and_the_help_of_each_begin_with_the_same_sentence() {
    let place = Place::new();
    let help = |arguments: &[&str]| {
        let output = place.command(arguments).env("COLUMNS", "1000").output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let program = help(&["-h"]);
    let commands = program.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = commands.take_while(|line| !line.is_empty()).collect();
    assert!(commands.len() > 15, "{program}");
    // Commands of tasks and of the program, and one with options of tasks.
    for name in ["train", "sample", "describe", "split-data", "train-judge"] {
        let sentence = commands.iter().find_map(|line| line.trim().strip_prefix(name));
        let sentence = sentence.unwrap_or_else(|| panic!("{name}: {program}")).trim();
        assert!(help(&[name, "-h"]).starts_with(sentence), "{name}: {sentence}");
    }
    assert!(help(&["sample", "-h"]).starts_with("Write what a model generates"));
}
