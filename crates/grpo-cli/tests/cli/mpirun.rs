//! `grpo train` as several processes. Without the feature `mpi`, only the refusal is tested.

#[cfg(not(feature = "mpi"))]
#[test]
fn several_processes_need_the_feature() {
    use snapbox::str;

    use crate::support::{Ended, Place};

    let place = Place::for_training();
    let mut command = place.command(&["train", "train.toml"]);
    command.envs([("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")]);
    Ended::of(command.output().unwrap()).assert_refused(str![[
        "several processes were started, but this grpo cannot connect them; build it with `cargo xtask build --features mpi`, or start one process without mpirun: built without the feature `mpi`"
    ]]);
}

#[cfg(feature = "mpi")]
mod with_mpi {
    use std::fs;
    use std::process::{Child, Command, Stdio};
    use std::thread;
    use std::time::{Duration, Instant};

    use grpo_data::{CounterRng, Purpose};

    use crate::resume::{kills, place, result};
    use crate::support::{Ended, Place};

    /// Returns `mpirun -n COUNT grpo ARGUMENTS`, with one compute thread per process.
    fn mpirun(place: &Place, count: usize, arguments: &[&str]) -> Command {
        several(place, &[(count, arguments)])
    }

    /// Like [`mpirun`], with other arguments for some of the processes.
    fn several(place: &Place, parts: &[(usize, &[&str])]) -> Command {
        let mut command = Command::new("mpirun");
        for (index, (count, arguments)) in parts.iter().enumerate() {
            if index > 0 {
                command.arg(":");
            }
            command.arg("-n").arg(count.to_string()).arg(env!("CARGO_BIN_EXE_grpo"));
            command.args(["--threads", "1"]).args(*arguments);
        }
        // Open MPI refuses root, and more processes than cores, unless it is told otherwise.
        command.envs([
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
            // The same for version 5 and later.
            ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
        ]);
        command.current_dir(place.path("")).stdin(Stdio::null());
        command
    }

    #[test]
    fn an_error_before_mpi_is_printed_once() {
        let place = Place::for_training();
        for (arguments, expect) in [
            (&["train", "train.toml", "--device", "tpu"][..], "error: invalid value 'tpu'"),
            (&["devices"], "error: this command runs in one process"),
        ] {
            let ended = Ended::of_command(&mut mpirun(&place, 2, arguments));
            assert_ne!(ended.code, Some(0));
            assert_eq!(ended.stderr.matches(expect).count(), 1, "{arguments:?}: {}", ended.stderr);
        }
    }

    fn succeed(place: &Place, count: usize, arguments: &[&str]) -> Ended {
        let ended = Ended::of_command(&mut mpirun(place, count, arguments));
        assert_eq!(ended.code, Some(0), "{count} × {arguments:?}: {}", ended.stderr);
        ended
    }

    /// Starts processes whose output is kept for the end.
    fn start(place: &Place, count: usize, arguments: &[&str]) -> Child {
        let mut command = mpirun(place, count, arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Waits until there are `count` ranks, and returns their process ids.
    fn ranks(of: &Child, count: usize) -> Option<Vec<String>> {
        for _try in 0..600 {
            let children = Command::new("pgrep").args(["-P", &of.id().to_string()]).output();
            let found = String::from_utf8(children.unwrap().stdout).unwrap();
            let found: Vec<String> = found.lines().map(str::to_owned).collect();
            if found.len() == count {
                return Some(found);
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// Waits until a file exists and is not empty.
    fn wait_for(place: &Place, name: &str) {
        let begun = Instant::now();
        while !fs::metadata(place.path(name)).is_ok_and(|found| found.len() > 0) {
            assert!(begun.elapsed() < Duration::from_secs(120), "`{name}` does not appear");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(process: &str, signal: &str) {
        // The process may have ended already. The captured output says so.
        let _ended = Command::new("kill").args([signal, process]).output();
    }

    #[test]
    fn any_number_of_processes_trains_the_same() {
        let place = place(4);
        place.succeed(&["train", "train.toml", "--run", "alone"]);
        let expected = result(&place.path("alone"));
        for count in 1..=4 {
            let run = format!("run-{count}");
            let ended = succeed(&place, count, &["train", "train.toml", "--run", &run]);
            assert!(result(&place.path(&run)) == expected, "{count} processes");
            place.succeed(&["audit", &run]);
            // Only one of them speaks.
            assert_eq!(ended.stdout.matches("run folder").count(), 1, "{}", ended.stdout);
            let shared = format!(" in each of {count} processes");
            assert_eq!(ended.stdout.contains(&shared), count > 1, "{}", ended.stdout);
        }
    }

    #[test]
    fn idle_processes_are_reported() {
        let place = place(1);
        let limit = |tokens: &str| {
            let limit = format!("train.micro_batch_tokens={tokens}");
            succeed(&place, 2, &["train", "train.toml", "--force", "--run", "run", "--set", &limit])
        };
        let warning = "warning: 2 processes share about 1 micro-batch per update";
        assert!(limit("100000").stdout.contains(warning));
        assert!(!limit("1").stdout.contains(warning));
    }

    /// Infilling has its own engine, and an adapter has a frozen base.
    #[test]
    fn infillers_and_adapters_train_the_same_too() {
        for (place, kind) in [
            (crate::infilling::place(), "model"),
            (crate::training_texts::place("qwen3"), "adapter"),
        ] {
            let trained = |run: &str| {
                let folder = place.path(&format!("{run}/{kind}"));
                (crate::resume::files(&folder), crate::resume::metrics(&place.path(run)))
            };
            place.succeed(&["train", "train.toml", "--run", "alone"]);
            for count in 2..=4 {
                let run = format!("run-{count}");
                succeed(&place, count, &["train", "train.toml", "--run", &run]);
                assert!(trained(&run) == trained("alone"), "{kind}: {count} processes");
            }
        }
    }

    /// A run that was killed before its first checkpoint starts again from the beginning.
    #[test]
    fn a_run_without_a_checkpoint_is_resumed() {
        let place = place(60);
        let settings = ["train", "train.toml", "--set", "save.every=100", "--set", "guards=[]"];
        place.succeed(&[&settings[..], &["--run", "whole"]].concat());
        let mut child = start(&place, 2, &settings);
        wait_for(&place, "run/metrics.jsonl");
        for rank in ranks(&child, 2).unwrap() {
            signal(&rank, "-KILL");
        }
        child.wait().unwrap();
        assert!(!place.path("run/checkpoints/step-60").exists(), "the run had already ended");
        succeed(&place, 2, &["train", "--resume", "run"]);
        assert!(result(&place.path("run")) == result(&place.path("whole")));
        // A finished run stays as it is.
        let again = succeed(&place, 2, &["train", "--resume", "run"]);
        assert!(again.stdout.contains("all 60 steps are done"), "{}", again.stdout);
    }

    /// Guards roll all ranks back to the same checkpoint, and stop all of them.
    #[test]
    fn roll_backs_are_the_same_on_any_number_of_processes() {
        for max_roll_backs in [0, 2] {
            let place = place(6);
            let guard = "\n[[guards]]\nwatch = \"reward\"\nabove = -10.0\nfrom_step = 3\naction = \"roll_back\"\nlearning_rate_factor = 0.5\n";
            place.write("train.toml", crate::resume::configuration(6) + guard);
            let set = format!("train.max_roll_backs={max_roll_backs}");
            let arguments = |run: &'static str| {
                ["train", "train.toml", "--set", &set, "--run", run].map(str::to_owned)
            };
            let alone = arguments("alone");
            let ended = place.run(&alone.each_ref().map(String::as_str));
            let expected = ended.stderr.lines().find(|line| line.starts_with("error: "));
            let expected = expected.map(|line| line.replace("run alone", "run several"));
            let several = arguments("several");
            let arguments = several.each_ref().map(String::as_str);
            let found = Ended::of_command(&mut mpirun(&place, 2, &arguments));
            let error = found.stderr.lines().find(|line| line.starts_with("error: "));
            assert_eq!(error.map(str::to_owned), expected, "{}", ended.stdout);
            assert!(result(&place.path("several")) == result(&place.path("alone")));
        }
    }

    /// A rank is killed at a random time after the ranks have connected. The run ends soon, and resumes
    /// with another number of processes.
    ///
    /// While ranks connect, a kill can make `mpirun` hang after all of them have ended: Open MPI 4.1
    /// then locks a mutex of a rank that is gone (docs/cluster.md, "What can go wrong").
    #[test]
    fn a_run_whose_rank_was_killed_resumes_with_any_number_of_processes() {
        let place = place(8);
        let child = start(&place, 2, &["train", "train.toml", "--run", "whole"]);
        wait_for(&place, "whole/config.toml");
        let connected = Instant::now();
        assert_eq!(Ended::wait_for(child).code, Some(0));
        let time = connected.elapsed().as_secs_f64();
        let expected = result(&place.path("whole"));
        let rng = CounterRng::new(5, Purpose::DATA_ORDER);
        for kill in 0..kills() {
            let child = start(&place, 2, &["train", "train.toml", "--run", "run"]);
            let ranks = ranks(&child, 2).unwrap();
            wait_for(&place, "run/config.toml");
            let share = rng.uniform([kill, 0, 0, 0]);
            thread::sleep(Duration::from_secs_f64(share * time));
            signal(&ranks[kill as usize % 2], "-KILL");
            let killed = Instant::now();
            let ended = Ended::wait_for(child);
            assert!(killed.elapsed() < Duration::from_secs(60), "{}", ended.stderr);
            let count = 1 + kill as usize % 3;
            succeed(&place, count, &["train", "--resume", "run"]);
            assert!(result(&place.path("run")) == expected, "kill {kill}");
            place.succeed(&["audit", "run"]);
            fs::remove_dir_all(place.path("run")).unwrap();
        }
    }

    /// A rank that hangs ends the run after the time limit, and is named.
    #[test]
    fn a_rank_that_hangs_is_named() {
        let place = place(500);
        let arguments = ["train", "train.toml", "--rank-time-limit", "15"];
        let refused = Ended::of_command(&mut mpirun(&place, 2, &arguments));
        let longer = "--rank-time-limit 15 must be longer than the 75 s that the rewards of an evaluation may take; raise it, or lower train.reward_time_limit or eval.samples";
        assert!(refused.stderr.contains(longer), "{}", refused.stderr);
        let of_step = [&arguments[..], &["--set", "eval.samples=1"]].concat();
        let refused = Ended::of_command(&mut mpirun(&place, 2, &of_step));
        let longer = "--rank-time-limit 15 must be longer than the 60 s that the rewards of a step may take; raise it, or lower train.reward_time_limit";
        assert!(refused.stderr.contains(longer), "{}", refused.stderr);
        let arguments = [&arguments[..], &["--set", "train.reward_time_limit=10"]].concat();
        let child = start(&place, 2, &arguments);
        let ranks = ranks(&child, 2).unwrap();
        wait_for(&place, "run/metrics.jsonl");
        signal(&ranks[1], "-STOP");
        let ended = Ended::wait_for(child);
        assert_ne!(ended.code, Some(0));
        let named = "rank 1 of 2 has not answered for 15 s";
        assert!(ended.stderr.contains(named), "{}", ended.stderr);
    }

    /// `mpirun` passes SIGUSR1 on to the ranks.
    #[test]
    fn an_interrupted_run_is_saved_and_resumes() {
        let place = place(60);
        succeed(&place, 2, &["train", "train.toml", "--run", "whole"]);
        let child = start(&place, 2, &["train", "train.toml"]);
        wait_for(&place, "run/metrics.jsonl");
        signal(&child.id().to_string(), "-USR1");
        let ended = Ended::wait_for(child);
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
        assert!(ended.stdout.contains("train --resume run"), "{}", ended.stdout);
        place.succeed(&["train", "--resume", "run"]);
        assert!(result(&place.path("run")) == result(&place.path("whole")));
    }

    #[test]
    fn errors_are_said_once_and_end_all_processes() {
        let refused = |place: &Place, parts: &[(usize, &[&str])], expected: &str| {
            let ended = Ended::of_command(&mut several(place, parts));
            assert_ne!(ended.code, Some(0));
            let lines = ended.stderr.lines().filter(|line| line.contains("error: "));
            assert_eq!(lines.collect::<Vec<_>>(), [expected], "{}", ended.stderr);
            assert!(!place.path("run").exists());
        };
        let place = place(3);
        let train: &[&str] = &["train", "train.toml"];
        let other: &[&str] = &["train", "train.toml", "--set", "seed=5"];
        refused(
            &place,
            &[(1, train), (1, other)],
            "error: rank 1 has a different configuration (`seed = 5`) from rank 0; start all ranks with the same program, configuration, files and type of device (--device)",
        );
        let invalid: &[&str] = &["train", "train.toml", "--set", "train.steps=0"];
        let ended = place.run(invalid).stderr;
        refused(&place, &[(3, invalid)], ended.trim_end());
        refused(
            &place,
            &[(2, &["train", "--resume", "whole", "--verify"])],
            "error: --verify runs in one process; start it without mpirun (results do not depend on the number of processes)",
        );
    }

    #[test]
    fn other_commands_refuse_several_processes() {
        let place = place(3);
        let ended = Ended::of_command(&mut mpirun(&place, 2, &["audit", "run"]));
        let refusal = "error: this command runs in one process, but 2 were started; start it without mpirun or srun (only `grpo train` uses several)";
        assert_ne!(ended.code, Some(0));
        assert!(ended.stderr.contains(refusal), "{}", ended.stderr);
    }
}
