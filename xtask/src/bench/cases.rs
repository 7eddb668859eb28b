//! Selects and runs benchmark cases.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::report::{Case, Measured, Report};
use super::surroundings::{Busy, Surroundings, cores, load};
use super::worker::{Answer, Worker, listed, ours};
use super::{Bench, Isa, peer, scaling, table};
use crate::build::built;
use crate::workspace::Workspace;

/// Runs the selected cases and reports the results.
pub(crate) fn run(root: &Path, bench: &Bench) -> Result<()> {
    let target = Workspace::read(root)?.target_directory;
    let ours = built(root, &[])?;
    let results =
        |name: &str| bench.json.clone().unwrap_or_else(|| target.join("bench").join(name));
    if bench.scaling {
        return scaling::run(root, &ours, bench.repeat.unwrap_or(3), &results("scaling.json"));
    }
    let chosen = choose(listed(&ours, "--list")?, &bench.case, bench.quick)?;
    if bench.list {
        chosen.iter().for_each(|case| println!("{}", case.name));
        return Ok(());
    }
    if let Some(isa) = bench.isa {
        isa.check_tools()?;
    }
    let threads = bench.threads.map_or_else(cores, Into::into);
    let peer_threads = bench.peer_threads.map_or(threads, Into::into);
    let python = match bench.against {
        true => Some(peer::python(root, &target, bench.python.as_deref())?),
        false => None,
    };
    let programs = Programs { root, ours, python, threads, peer_threads, isa: bench.isa };
    let repeat = bench.repeat.unwrap_or(if bench.quick { 2 } else { 5 });
    let mut report = Report {
        surroundings: Surroundings::read(root, bench.isa),
        threads,
        peer_threads: programs.python.is_some().then_some(peer_threads),
        peer: programs.python.as_deref().map(peer::versions).transpose()?,
        load_before: load(),
        load_after: None,
        cases: Vec::new(),
    };
    // Keep the results obtained before an error.
    let done = chosen.into_iter().try_for_each(|case| {
        report.cases.push(programs.measure(case, repeat)?);
        Ok(())
    });
    report.load_after = load();
    if !report.cases.is_empty() {
        let path = results("cases.json");
        report.write(&path)?;
        print!("{}", report.text());
        println!("Written to {}", path.display());
    }
    done
}

/// Selects the cases with one of these names or, where a text is not the full name of a case, whose
/// name contains it. Selects all cases if `texts` is empty. With `quick`, slow cases are skipped. Cases
/// for GPUs are only run if their full name is given.
fn choose(cases: Vec<Case>, texts: &[String], quick: bool) -> Result<Vec<Case>> {
    for text in texts {
        if !cases.iter().any(|case| case.name.contains(text.as_str())) {
            let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
            bail!("no case name contains `{text}`; available: {}", names.join(", "));
        }
    }
    let full: Vec<&String> =
        texts.iter().filter(|text| cases.iter().any(|case| case.name == **text)).collect();
    let matches = |case: &Case, text: &String| match case.for_gpus || full.contains(&text) {
        true => case.name == *text,
        false => case.name.contains(text),
    };
    let named = |case: &Case| match texts {
        [] => !case.for_gpus,
        _ => texts.iter().any(|text| matches(case, text)),
    };
    let chosen: Vec<Case> =
        cases.into_iter().filter(|case| named(case) && (case.quick || !quick)).collect();
    if chosen.is_empty() {
        bail!("none of these cases is quick; remove --quick");
    }
    Ok(chosen)
}

/// The programs that run a case.
struct Programs<'a> {
    root: &'a Path,
    ours: PathBuf,
    python: Option<PathBuf>,
    threads: usize,
    peer_threads: usize,
    isa: Option<Isa>,
}

impl Programs<'_> {
    fn ours(&self, case: &str) -> Result<Worker> {
        let command = match self.isa {
            Some(isa) => isa.command(self.root, &self.ours),
            None => Command::new(&self.ours),
        };
        Worker::start(ours(command), case, self.threads, self.isa)
    }

    fn peer(&self, case: &str) -> Result<Option<Worker>> {
        let Some(python) = &self.python else { return Ok(None) };
        let mut command = peer::command(self.root, python, self.peer_threads);
        command.envs(self.isa.map(Isa::torch_environment).into_iter().flatten());
        Worker::start(command, case, self.peer_threads, self.isa).map(Some)
    }

    /// Runs all repetitions of a case. Each round includes one repetition per program, so that
    /// disturbances affect both sides equally.
    fn measure(&self, case: Case, repeat: u32) -> Result<Measured> {
        eprintln!("{}", case.name);
        let mut ours = self.ours(&case.name)?;
        let mut peer = if case.peer { self.peer(&case.name)? } else { None };
        let (mut limit, mut peer_limit) = match &case.limit {
            Some(limit) => (Some(self.ours(limit)?), self.peer(limit)?),
            None => (None, None),
        };
        let workers = [Some(&ours), peer.as_ref(), limit.as_ref(), peer_limit.as_ref()];
        let ids: Vec<u32> = workers.into_iter().flatten().flat_map(Worker::ids).collect();
        let before = Busy::now(&ids);
        let mut measured = Measured::new(case);
        for round in 0..repeat {
            // Alternate the order.
            if round % 2 == 0 {
                measured.ours.push(ours.run()?);
                measured.peer.extend(of(&mut peer)?);
            } else {
                measured.peer.extend(of(&mut peer)?);
                measured.ours.push(ours.run()?);
            }
            measured.limit.extend(of(&mut limit)?);
            measured.peer_limit.extend(of(&mut peer_limit)?);
            let rate = |answers: &[Answer]| {
                answers.last().map_or("–".to_owned(), |last| table::number(last.rate()))
            };
            let (ours, peer) = (rate(&measured.ours), rate(&measured.peer));
            eprintln!("  {} of {repeat}: {ours} {}/s, peer {peer}", round + 1, measured.case.unit);
        }
        measured.others =
            before.zip(Busy::now(&ids)).map(|(before, after)| before.others_until(after));
        Ok(measured)
    }
}

fn of(worker: &mut Option<Worker>) -> Result<Option<Answer>> {
    worker.as_mut().map(Worker::run).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_chosen_by_name_and_speed() {
        let case = |name: &str, quick| Case {
            name: name.into(),
            unit: "tokens".into(),
            peer: false,
            limit: None,
            quick,
            for_gpus: name.ends_with("large"),
        };
        let check = |texts: &[&str], quick, expect: &str| {
            let cases = vec![
                case("step-a", true),
                case("step-b", false),
                case("step-b-bf16", true),
                case("rewards", true),
                case("step-large", false),
            ];
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            let found = match choose(cases, &texts, quick) {
                Ok(found) => found.into_iter().map(|case| case.name).collect::<Vec<_>>().join(" "),
                Err(error) => error.to_string(),
            };
            assert_eq!(found, expect);
        };
        check(&[], false, "step-a step-b step-b-bf16 rewards");
        check(&[], true, "step-a step-b-bf16 rewards");
        check(&["step"], false, "step-a step-b step-b-bf16");
        check(&["step-b"], false, "step-b");
        check(&["p-b"], false, "step-b step-b-bf16");
        check(&["step-large"], false, "step-large");
        check(&["wards", "step-a"], true, "step-a rewards");
        check(&["step-b"], true, "none of these cases is quick; remove --quick");
        check(
            &["step", "no"],
            false,
            "no case name contains `no`; available: step-a, step-b, step-b-bf16, rewards, step-large",
        );
    }
}
