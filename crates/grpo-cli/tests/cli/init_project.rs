//! `grpo init-project` creates the examples from data inside the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::support::{Ended, Place, signal};

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Lists all files in a folder and its subfolders as relative paths.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path.strip_prefix(folder).unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn init_project_writes_the_files_of_the_checkout() {
    let place = Place::new();
    let created = place.succeed(&["init-project", "a/demo"]);
    assert!(created.stdout.lines().count() <= 6, "{}", created.stdout);
    assert!(created.stdout.contains("cd a/demo\n"), "{}", created.stdout);
    assert_eq!(created.stderr, "");

    let demo = place.path("a/demo");
    let written = files_below(&demo);
    for file in &written {
        let (own, original) = (demo.join(file), checkout().join(file));
        match file.extension().is_some_and(|extension| extension == "md") {
            // Only links that leave the project differ.
            true => {
                let (name, original) = (file.to_str().unwrap(), fs::read_to_string(original));
                let expected = grpo_links::without_links_outside(
                    &name.replace('\\', "/"),
                    &original.unwrap(),
                    |path| demo.join(path).exists(),
                    Some(env!("CARGO_PKG_REPOSITORY")),
                );
                assert_eq!(fs::read_to_string(own).unwrap(), expected, "{name}");
            }
            false => assert_eq!(fs::read(own).unwrap(), fs::read(original).unwrap()),
        }
    }
    // All files are present, except those written by commands.
    for folder in ["configs", "data"] {
        for file in files_below(&checkout().join(folder)) {
            let file = Path::new(folder).join(file);
            let is_output = file.starts_with("data/processed");
            assert!(is_output || written.contains(&file), "{}", file.display());
        }
    }
    // The pages that messages and configurations name.
    let sources = files_below(&checkout().join("crates"));
    let sources = sources
        .into_iter()
        .filter(|path| path.components().nth(1) == Some(Component::Normal("src".as_ref())))
        // Its tests have pages of their own.
        .filter(|path| !path.starts_with("grpo-links"));
    let sources = sources.map(|path| Path::new("crates").join(path));
    let configs = written.iter().filter(|path| path.starts_with("configs")).cloned();
    for path in sources.chain(configs) {
        let text = String::from_utf8(fs::read(checkout().join(&path)).unwrap()).unwrap_or_default();
        // Comments and `include_str!` name pages of the repository.
        let lines = text.lines().filter(|line| {
            path.starts_with("configs")
                || !(line.trim_start().starts_with("//") || line.contains("include_str!"))
        });
        for page in lines.flat_map(|line| line.split("docs/").skip(1)) {
            let Some((page, _)) = page.split_once(".md") else { continue };
            let page = Path::new("docs").join(format!("{page}.md"));
            assert!(written.contains(&page), "{} in {}", page.display(), path.display());
        }
    }
    // No temporary folder is left behind.
    assert_eq!(fs::read_dir(place.path("a")).unwrap().count(), 1);
}

/// Pages are read in the project, without the repository.
#[test]
fn no_link_of_a_project_is_dead_and_the_index_lists_all_pages() {
    let place = Place::new();
    let created = place.succeed(&["init-project", "demo"]);
    assert!(created.stdout.contains("demo/docs/README.md lists all guides"), "{}", created.stdout);
    let demo = place.path("demo");
    let pages: BTreeMap<String, String> = files_below(&demo)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| {
            let text = fs::read_to_string(demo.join(&path)).unwrap();
            (path.to_str().unwrap().replace('\\', "/"), text)
        })
        .collect();
    let exists = |path: &str| demo.join(path).exists();
    let page_at = |path: &str| pages.get(path).map(String::as_str);
    let mut count = 0;
    for (path, text) in &pages {
        count += grpo_links::links(text).len();
        let dead = grpo_links::dead_links(path, text, exists, page_at);
        assert!(dead.is_empty(), "{path}: {dead:?}");
        // Nor does a line that the search for links does not understand lead out of the project.
        let outside = text.lines().find(|line| line.contains("../crates/"));
        assert_eq!(outside, None, "{path}");
    }
    assert!(count > 300, "only {count} links were found");

    const INDEX: &str = "docs/README.md";
    // It lists the indexes of folders.
    let is_index = |path: &&String| path.starts_with("docs/") && path.ends_with("/README.md");
    let listed = |index: &String| {
        let links = grpo_links::links(&pages[index]).into_iter();
        links.filter_map(|link| grpo_links::resolve(index, link.target)).collect::<Vec<_>>()
    };
    let listed: BTreeSet<String> = pages.keys().filter(is_index).flat_map(listed).collect();
    for page in pages.keys().filter(|path| path.starts_with("docs/") && *path != INDEX) {
        assert!(listed.contains(page), "{INDEX} does not list {page}");
    }
}

#[test]
fn init_project_fills_an_empty_folder_and_refuses_any_other() {
    let place = Place::new();
    fs::create_dir(place.path("demo")).unwrap();
    let mut command = place.command(&["init-project", "."]);
    let output = command.current_dir(place.path("demo")).output().unwrap();
    assert!(output.status.success());
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.starts_with("created      . ("), "{stdout}");
    // The current folder needs no `cd`.
    assert!(!stdout.contains("cd ."), "{stdout}");
    assert!(place.path("demo/configs/molecules/grpo.toml").is_file());
    assert_eq!(fs::read_dir(place.path("demo")).unwrap().count(), 3);

    place.refuse(
        &["init-project", "demo"],
        "demo is not empty; choose a new folder, then copy the files that you want from it",
    );
    place.write("file", "");
    place.refuse(&["init-project", "file"], "file is a file; choose a new folder");
}

#[test]
fn a_model_trains_in_a_new_project() {
    let place = Place::new();
    place.succeed(&["init-project", "demo"]);
    let run = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        let output = command.current_dir(place.path("demo")).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    };
    let small = ["train.steps=1", "train.prompts_per_step=1", "eval.samples=10"];
    let mut arguments = vec!["train", "configs/molecules/grpo.toml"];
    arguments.extend(small.iter().flat_map(|pair| ["--set", pair]));
    run(&arguments);
    assert!(place.path("demo/runs/molecules/model/model.safetensors").is_file());
    // Check all stages and the files that they read.
    for task in ["replies", "infill"] {
        run(&["run", &format!("configs/{task}/pipeline.toml"), "--check"]);
    }
}

#[test]
fn missing_examples_are_refused_with_the_command_that_writes_them() {
    let place = Place::new();
    let hint = "`grpo init-project DIR` writes the examples into a new folder";
    for (arguments, fault) in [
        (
            &["train", "configs/molecules/grpo.toml"][..],
            "configuration file configs/molecules/grpo.toml does not exist",
        ),
        (
            &["run", "configs/infill/pipeline.toml"],
            "configuration file configs/infill/pipeline.toml does not exist",
        ),
    ] {
        place.refuse(arguments, format!("{fault}; {hint}"));
    }
    let sampled = place.run(&["sample", "-n", "1"]);
    assert_eq!(sampled.code, Some(1));
    assert!(sampled.stderr.contains("model folder data/molecules/prior does not exist"));
    assert!(sampled.stderr.ends_with(&format!("; {hint}\n")), "{}", sampled.stderr);
    // In a project, the path is wrong.
    fs::create_dir(place.path("configs")).unwrap();
    place.refuse(
        &["train", "configs/molecules/grpo.toml"],
        "configuration file configs/molecules/grpo.toml does not exist; check the path",
    );
    if cfg!(target_os = "linux") {
        let ended = place.run(&["init-project", "/proc/x"]);
        let said = "error: cannot write `/proc/x`: no such file or folder; its folder does not exist or accepts no new files, so choose another one\n";
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), said));
    }
}

/// A signal leaves no half-written project behind.
#[test]
#[cfg(unix)]
fn a_signal_leaves_no_hidden_folder() {
    let place = Place::new();
    for wait in [0, 1, 2, 5, 10, 20, 50, 100, 200] {
        let child = place.spawn(&["init-project", "new"]);
        let hidden = place.path(".new.tmp-0");
        let begun = std::time::Instant::now();
        while !hidden.exists() && !place.path("new").exists() {
            assert!(begun.elapsed().as_secs() < 60, "no folder");
        }
        std::thread::sleep(std::time::Duration::from_millis(wait));
        signal(&child, "-TERM");
        let ended = Ended::wait_for(child);
        let said = ended.stderr;
        assert!(!hidden.exists() && !said.contains("error"), "after {wait} ms: {said}");
        // The project was complete before the signal.
        if ended.code == Some(0) || place.path("new").exists() {
            assert!(place.path("new/data/README.md").exists());
            return;
        }
        assert_eq!(ended.code, Some(130), "after {wait} ms: {said}");
    }
}
