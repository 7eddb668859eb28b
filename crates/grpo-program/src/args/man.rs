//! `grpo man`: writes a man page for each command.

use std::io::Write;

use anyhow::Context;
use clap_mangen::Man;
use grpo_task::output::{FileInPlace, create_folder, say};
use grpo_task::task::Tasks;

use crate::args;
use crate::args::ManArguments;

pub(crate) fn run(arguments: &ManArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let folder = &arguments.folder;
    create_folder(folder)?;
    let (program, _) = args::program(tasks);
    // Man pages have their own list of subcommands.
    let mut program = program.help_template("{all-args}").disable_help_subcommand(true);
    program.build();
    let mut count = 1;
    write_page(&program, "grpo", arguments)?;
    for command in program.get_subcommands() {
        write_page(command, &format!("grpo-{}", command.get_name()), arguments)?;
        count += 1;
    }
    say(format_args!("written      {} ({count} pages)", folder.display()));
    Ok(())
}

fn write_page(command: &clap::Command, name: &str, arguments: &ManArguments) -> anyhow::Result<()> {
    let mut page = Vec::new();
    let man = Man::new(command.clone()).title(name);
    let man = man.source(concat!("grpo ", env!("CARGO_PKG_VERSION")));
    man.render(&mut page).context("cannot write a manual page")?;
    let path = arguments.folder.join(format!("{name}.1"));
    let mut file = FileInPlace::create(&path)?;
    file.write_all(&page).with_context(|| format!("cannot write {}", path.display()))?;
    file.finish()
}
