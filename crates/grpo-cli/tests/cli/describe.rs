//! `grpo describe`.

use std::io::Write;
use std::process::Stdio;

use flate2::Compression;
use flate2::write::GzEncoder;
use snapbox::str;

use crate::support::{Ended, Place};

const HEADER: &str = "smiles,valid,canonical,mw,logp,tpsa,hba,hbd,rotatable,aromatic_rings,alerts,qed,sa,scaffold,reason,name";

/// Describes a file with the given name and contents. Returns the rows without the header.
#[track_caller]
fn describe(name: &str, content: &[u8]) -> Vec<String> {
    let place = Place::new();
    place.write(name, content);
    let ended = place.succeed(&["describe", name]);
    let mut lines = ended.stdout.lines().map(str::to_owned);
    assert_eq!(lines.next().as_deref(), Some(HEADER));
    let rows: Vec<String> = lines.collect();
    let valid = rows.iter().filter(|row| row.contains(",1,")).count();
    let invalid = rows.len() - valid;
    let empty = match rows.iter().filter(|row| row.starts_with(',')).count() {
        0 => String::new(),
        empty => format!(", {empty} of them empty"),
    };
    assert_eq!(ended.stderr, format!("valid    {valid:>8}\ninvalid  {invalid:>8}{empty}\n"));
    rows
}

/// Compares the columns `smiles`, `valid` and `canonical`.
#[track_caller]
fn check(name: &str, content: &[u8], expected: &[&str]) {
    let rows = describe(name, content);
    let starts: Vec<String> =
        rows.iter().map(|row| row.split(',').take(3).collect::<Vec<_>>().join(",")).collect();
    assert_eq!(starts, expected);
}

#[test]
fn a_row_for_each_line_valid_or_not() {
    let rows = describe("a.smi", b"OCC\nC(\n\nOC(=O)c1ccccc1OC(C)=O\n");
    assert_eq!(rows.len(), 4);
    // Values from RDKit for ethanol and aspirin.
    assert_eq!(rows[0], "OCC,1,CCO,46.069000,-0.001400,20.230000,1,1,0,0,0,0.406808,1.980257,,,");
    assert!(rows[1].starts_with("C(,0,,,,,,,,,,,,,syntax error at position "), "{}", rows[1]);
    assert_eq!(rows[2], ",0,,,,,,,,,,,,,the string is empty,");
    assert_eq!(
        rows[3],
        "OC(=O)c1ccccc1OC(C)=O,1,CC(=O)Oc1ccccc1C(=O)O,180.159000,1.310100,63.600000,4,1,2,1,2,0.550122,1.580040,c1ccccc1,,"
    );
}

#[test]
fn names_line_ends_and_a_last_line_without_one() {
    check(
        "a.smi",
        b"OCC ethanol\r\nC\tmethane one\r\nNC   \r\n  \r\nCl",
        &["OCC,1,CCO", "C,1,C", "NC,1,CN", ",0,", "Cl,1,Cl"],
    );
    check("header.smi", b"\xEF\xBB\xBFSMILES name\nOCC ethanol\n", &["OCC,1,CCO"]);
}

#[test]
fn compressed_and_tables() {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(b"OCC\nNC\n").unwrap();
    check("a.smi.gz", &gz.finish().unwrap(), &["OCC,1,CCO", "NC,1,CN"]);
    check("a.csv", b"id,Smiles\n1,OCC\n2,\"NC\"\n3,\n", &["OCC,1,CCO", "NC,1,CN", ",0,"]);

    let place = Place::new();
    place.write("b.csv", "structure,smiles\nOCC,wrong\n");
    let ended = place.succeed(&["describe", "b.csv", "--column", "STRUCTURE"]);
    assert!(ended.stdout.lines().nth(1).unwrap().starts_with("OCC,1,CCO,"));
}

#[test]
fn fields_that_need_quotes_have_them() {
    let rows = describe("a.csv", b"smiles\n\"C,C\"\n\"C\"\"\"\n");
    assert!(rows[0].starts_with("\"C,C\",0,"), "{}", rows[0]);
    assert!(rows[1].starts_with("\"C\"\"\",0,"), "{}", rows[1]);
}

#[test]
fn more_lines_than_a_block() {
    let molecules = ["C", "CC", "X"].map(|smiles| format!("{smiles}\n")).concat().repeat(1500);
    let rows = describe("many.smi", molecules.as_bytes());
    assert_eq!(rows.len(), 4500);
    for three in rows.chunks(3) {
        assert!(three[0].starts_with("C,1,C,") && three[1].starts_with("CC,1,CC,"));
        assert!(three[2].starts_with("X,0,"));
    }
}

#[test]
fn an_output_file_is_there_when_it_is_whole() {
    let place = Place::new();
    place.write("a.smi", "OCC\nC(\n");
    let shown = place.succeed(&["describe", "a.smi"]).stdout;
    let ended = place.succeed(&["describe", "a.smi", "-o", "a.csv"]);
    assert_eq!((ended.stdout.as_str(), place.read("a.csv")), ("", shown));
    assert_eq!(place.files().len(), 2);

    // Existing files are only replaced with --force, and never if reading fails.
    place.refuse(
        &["describe", "a.smi", "-o", "a.csv"],
        str!["a.csv already exists; choose another file, or replace it with --force"],
    );
    place.succeed(&["describe", "a.smi", "-o", "a.csv", "--force"]);
    place.write("bad.smi", b"C\nC\n\xff\n");
    place.refuse(
        &["describe", "bad.smi", "-o", "a.csv", "--force"],
        str!["line 3 of `bad.smi` is not UTF-8 text; save the file as UTF-8 (a compressed file's name must end in `.gz`)"],
    );
    place.refuse(
        &["describe", "a.smi", "-o", "absent/a.csv"],
        str!["cannot write absent/a.csv: the folder absent does not exist; create it first"],
    );
    std::fs::create_dir(place.path("folder")).unwrap();
    place.refuse(&["describe", "a.smi", "-o", "folder"], str!["folder is a folder, not a file"]);
}

#[test]
fn files_that_cannot_be_read() {
    let place = Place::new();
    place.refuse(&["describe", "absent.smi"], str!["`absent.smi` does not exist; check the path"]);
    place.write("a.sdf", "C\n");
    place.refuse(
        &["describe", "a.sdf"],
        str!["cannot determine the format of `a.sdf` from its name; expected a name ending in `.smi`, `.smi.gz`, `.csv` or `.csv.gz`"],
    );
    place.write("a.csv", "smiles\nC\n");
    place.refuse(
        &["describe", "a.csv", "--column", "molecule"],
        str!["`a.csv` has no column `molecule` (columns: `smiles`); rename the column that contains the SMILES or set --column"],
    );
    place.write("a.smi.gz", "C\n");
    let ended = place.run(&["describe", "a.smi.gz"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1));
    assert!(ended.stderr.contains("`a.smi.gz` cannot be decompressed"), "{}", ended.stderr);
}

/// Tests `grpo describe … | head -1`.
#[test]
#[cfg(unix)]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new();
    // Exceeds the buffer of a pipe.
    place.write("many.smi", "CCO\n".repeat(20_000));
    let mut child = place
        .command(&["describe", "many.smi"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = Ended::wait_for(child);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk() {
    let place = Place::new();
    place.write("a.smi", "CCO\n".repeat(1000));
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ended = Ended::of(place.command(&["describe", "a.smi"]).stdout(full()).output().unwrap());
    ended.assert_refused(str![
        "cannot write properties to standard output: no space left on the disk"
    ]);
    // Devices are written to instead of being replaced.
    place.refuse(
        &["describe", "a.smi", "-o", "/dev/full"],
        str!["cannot write /dev/full: no space left on the disk"],
    );
    place.succeed(&["describe", "a.smi", "-o", "/dev/null"]);
    for device in ["/dev/full", "/dev/null"] {
        use std::os::unix::fs::FileTypeExt;
        assert!(std::fs::metadata(device).unwrap().file_type().is_char_device());
    }
}

/// A file size limit simulates a disk that becomes full while writing.
#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_becomes_full() {
    let place = Place::new();
    place.write("a.smi", "CCO\n".repeat(5000));
    let before = place.files();
    let script =
        format!("ulimit -f 16; exec {} describe a.smi -o a.csv", env!("CARGO_BIN_EXE_grpo"));
    let mut shell = std::process::Command::new("sh");
    let run = shell.arg("-c").arg(script).current_dir(place.path(".")).output().unwrap();
    Ended::of(run).assert_refused(str!["cannot write properties to a.csv: the file is too large"]);
    assert_eq!(place.files(), before, "half a file was left");
}

/// A signal removes the hidden file of an incomplete output.
#[test]
#[cfg(unix)]
fn a_signal_leaves_no_hidden_file() {
    for signal in ["TERM", "HUP", "INT"] {
        let place = Place::new();
        place.write("a.smi", "CC(C)Cc1ccc(cc1)C(C)C(=O)O\n".repeat(300_000));
        let child = place
            .command(&["describe", "a.smi", "-o", "a.csv"])
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let begun = std::time::Instant::now();
        while place.files().len() < 2 {
            assert!(begun.elapsed().as_secs() < 60, "no output file");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let kill = format!("kill -{signal} {}", child.id());
        let killed = std::process::Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(killed.success());
        let ended = Ended::wait_for(child);
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
        assert_eq!(place.files().len(), 1, "{:?}", place.files());
    }
}

/// An extension makes another molecule, so it is neither a name nor left out.
#[test]
fn a_cxsmiles_extension_is_not_a_name() {
    for (line, name) in [
        ("CC |^1:1|", ""),
        ("C[C@H](F)Cl |&1:1|", ""),
        ("CCO\t|^1:1|", ""),
        ("CCO |$;;R1$| rgroup", "rgroup"),
        ("*CC |$_AP1;;$,m:0:1.2|", ""),
        ("C[C@H](O)F |r|", ""),
        ("[CH2]C |^1:0| ethyl", "ethyl"),
        ("CC  |^1:1|\tethyl radical", "ethyl radical"),
        ("CC |^1:1", ""),
    ] {
        let reason = "not supported: a CXSMILES extension after the SMILES";
        let rows = describe("a.smi", format!("{line}\n").as_bytes());
        let row = &rows[0];
        assert!(row.contains(",0,,,,,,,,,,,,,") && row.contains(reason), "{row}");
        assert!(row.ends_with(&format!(",{name}")), "{row}");
        let rows = describe("a.csv", format!("smiles\n\"{line}\"\n").as_bytes());
        // The whole cell is the SMILES.
        assert!(rows[0].contains(reason) && rows[0].ends_with(','), "{}", rows[0]);
    }
    let place = Place::new();
    place.write("a.csv", "id,smiles\n1,C\n2,\"C\nC\"\n");
    place.refuse(
        &["describe", "a.csv"],
        str!["line 3 of `a.csv` has a SMILES with a line break; write one molecule per row, or close a quote"],
    );
}

/// Returns the cells of a CSV table without quoted cells, by column.
fn cells(table: &str, columns: &[&str]) -> Vec<Vec<String>> {
    let mut rows = table.lines().map(|row| row.split(',').collect::<Vec<_>>());
    let header = rows.next().unwrap();
    let index = |name: &&str| header.iter().position(|column| column == name).unwrap();
    let indices: Vec<usize> = columns.iter().map(index).collect();
    rows.map(|row| indices.iter().map(|index| row[*index].to_owned()).collect()).collect()
}

#[test]
fn made_molecules_have_the_properties_that_are_described() {
    let place = Place::new();
    let made = place.succeed(&["make-molecules", "--number", "30", "-o", "mock.csv"]);
    assert_eq!(made.stderr, "written            30\n");
    let made = place.read("mock.csv");
    let header = "smiles,scaffold_smiles,logp,sas,qed,tpsa,split";
    assert_eq!(made.lines().next(), Some(header));
    let made = cells(&made, &["smiles", "scaffold_smiles", "logp", "sas", "qed", "tpsa"]);
    assert_eq!(made.len(), 30);
    let described = place.succeed(&["describe", "mock.csv"]).stdout;
    let expected = cells(&described, &["canonical", "scaffold", "logp", "sa", "qed", "tpsa"]);
    assert_eq!(made, expected);
}
