use flate2::{Compression, write::GzEncoder};
use grpo_data::DataError;
use grpo_molecules::{MoleculeFormat, MoleculeReader, MoleculeRecord, ReadOptions};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::path::Path;

use MoleculeFormat::{Csv, Smi};

fn reader(bytes: &[u8], format: MoleculeFormat, gz: bool) -> Result<MoleculeReader, DataError> {
    MoleculeReader::from_reader(
        Cursor::new(bytes.to_vec()),
        format,
        gz,
        Path::new("x"),
        &ReadOptions::default(),
    )
}

fn read(text: &str, format: MoleculeFormat) -> Vec<MoleculeRecord> {
    let reader = reader(text.as_bytes(), format, false).unwrap();
    reader.collect::<Result<_, _>>().unwrap()
}

fn record(line: u64, smiles: &str, name: Option<&str>, split: Option<&str>) -> MoleculeRecord {
    MoleculeRecord {
        conditions: Default::default(),
        line,
        smiles: smiles.into(),
        name: name.map(str::to_owned),
        split: split.map(str::to_owned),
    }
}

fn error(bytes: &[u8], format: MoleculeFormat, gz: bool) -> String {
    match reader(bytes, format, gz) {
        Err(error) => error.to_string(),
        Ok(reader) => {
            let mut results = reader.skip_while(Result::is_ok);
            let error = results.next().expect("an error").unwrap_err();
            assert!(results.next().is_none(), "the reader went on after {error}");
            error.to_string()
        }
    }
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_smiles_ends_at_the_first_blank() {
    assert_eq!(
        read("CCO ethyl alcohol\nC\tmethane gas\nN \n  O  \n", Smi),
        [
            record(1, "CCO", Some("ethyl alcohol"), None),
            record(2, "C", Some("methane gas"), None),
            record(3, "N", None, None),
            record(4, "O", None, None),
        ]
    );
}

#[test]
fn line_ends_marks_and_a_missing_last_one_make_no_difference() {
    let expect = [record(1, "C", None, None), record(2, "N", Some("a"), None)];
    assert_eq!(read("C\nN a\n", Smi), expect);
    assert_eq!(read("\u{feff}C\r\nN a", Smi), expect);
    assert_eq!(read("C\rN a\r", Smi), expect);
    let expect = [record(2, "C", None, Some("train")), record(3, "N", None, Some("test"))];
    assert_eq!(read("smiles,split\nC,train\nN,test\n", Csv), expect);
    assert_eq!(read("\u{feff}smiles,split\r\nC,train\r\nN,test", Csv), expect);
}

#[test]
fn lines_without_a_smiles_are_counted() {
    let check = |text: &str, format, expect: &[(u64, &str)], empty: u64| {
        let mut reader = reader(text.as_bytes(), format, false).unwrap();
        let found: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
        let found: Vec<_> = found.iter().map(|r| (r.line, r.smiles.as_str())).collect();
        assert_eq!(found, expect);
        assert_eq!(reader.empty_lines(), empty);
    };
    check("\nC\n \t\n\r\nN\n", Smi, &[(2, "C"), (5, "N")], 3);
    check("", Smi, &[], 0);
    check("smiles,q\nC,1\n,2\n \t,3\nN,4\n", Csv, &[(2, "C"), (5, "N")], 2);
    // Blank lines are not CSV rows, but they are included in line numbers.
    check("smiles,q\n\nC,1\n\n\nN,4\n", Csv, &[(3, "C"), (6, "N")], 0);
    check("smiles,q\n\"C\n\",1\nN,4\n", Csv, &[(2, "C"), (4, "N")], 0);
}

#[test]
fn lines_without_a_smiles_are_kept_where_that_is_asked_for() {
    let options = ReadOptions { keep_empty: true, ..ReadOptions::default() };
    let check = |text: &'static str, format, expect: &[(u64, &str)]| {
        let source = Cursor::new(text);
        let mut reader =
            MoleculeReader::from_reader(source, format, false, Path::new("x"), &options).unwrap();
        let found: Vec<_> = reader.by_ref().map(|record| record.unwrap()).collect();
        let found: Vec<_> = found.iter().map(|r| (r.line, r.smiles.as_str())).collect();
        assert_eq!(found, expect);
        assert_eq!(reader.empty_lines(), 0);
    };
    check("C\n\n \nN\n", Smi, &[(1, "C"), (2, ""), (3, ""), (4, "N")]);
    check("name,smiles\na,C\nb,\n", Csv, &[(2, "C"), (3, "")]);
}

#[test]
fn a_header_line_in_a_smi_file_is_kept_apart() {
    let mut reader = reader(b"SMILES name\nC x\nsmiles y\n", Smi, false).unwrap();
    assert_eq!(reader.header(), None);
    assert_eq!(reader.next().unwrap().unwrap(), record(2, "C", Some("x"), None));
    assert_eq!(reader.header(), Some("SMILES name"));
    assert_eq!(reader.next().unwrap().unwrap().smiles, "smiles");
}

#[test]
fn columns_are_found_in_any_case_and_order() {
    let check = |header: &str| {
        let text = format!("{header}\n1,\" C \",n,train\n");
        assert_eq!(read(&text, Csv), [record(2, "C", Some("n"), Some("train"))]);
    };
    check("id,SMILES,Name,Split");
    check("id,Canonical_Smiles,name,SOURCE");
    check("id, molecule ,NAME,source");
    // Files with a different separator.
    for separator in [";", "\t"] {
        let text =
            "\n id ; Name;smiles;b\n1;\"n;,\";\" C \";,\n".to_string().replace(';', separator);
        let name = format!("n{separator},");
        assert_eq!(read(&text, Csv), [record(3, "C", Some(&name), None)]);
    }
    // `smiles` takes precedence over `molecule`, regardless of the column order.
    assert_eq!(read("molecule,smiles\nmethane,C\n", Csv)[0].smiles, "C");
}

#[test]
fn columns_with_conditions_are_read_with_their_empty_cells() {
    let source = Cursor::new(
        "SMILES,LogP,note,scaffold_smiles,SAS\nCCO,-0.1,x,,2\nc1ccccc1,,y,c1ccccc1,1\n",
    );
    let options = ReadOptions::default();
    let reader = MoleculeReader::from_reader(source, Csv, false, Path::new("x"), &options);
    let rows: Vec<_> = reader.unwrap().map(|row| row.unwrap().conditions).collect();
    let row = |cells: [Option<&str>; 3]| -> BTreeMap<String, Option<String>> {
        let names = ["logp", "scaffold_smiles", "sas"].map(str::to_owned);
        names.into_iter().zip(cells.map(|cell| cell.map(str::to_owned))).collect()
    };
    assert_eq!(rows[0], row([Some("-0.1"), None, Some("2")]));
    assert_eq!(rows[1], row([None, Some("c1ccccc1"), Some("1")]));
}

#[test]
fn the_column_can_be_named() {
    let open = |column: &str| {
        let options = ReadOptions {
            smiles_column: Some(column.into()),
            column_setting: Some("--column"),
            ..ReadOptions::default()
        };
        let source = Cursor::new("smiles,Product\nC,N\n");
        MoleculeReader::from_reader(source, Csv, false, Path::new("x"), &options)
    };
    assert_eq!(open("product").unwrap().next().unwrap().unwrap().smiles, "N");
    assert_eq!(
        open("educt").err().unwrap().to_string(),
        "`x` has no column `educt` (columns: `smiles`, `Product`); rename the column that contains the SMILES or set --column"
    );
}

#[test]
fn the_name_of_a_file_tells_its_format() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let mut reader = MoleculeReader::open(&path, &ReadOptions::default()).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().smiles, "C", "{name}");
    };
    check("a.smi", b"C\n");
    check("a.b.SMI", b"C\n");
    check("a.csv", b"smiles\nC\n");
    check("a.smi.gz", &gzip("C\n"));
    check("a.Csv.Gz", &gzip("smiles\nC\n"));
    let error = |path: &Path| {
        let error = MoleculeReader::open(path, &ReadOptions::default()).err().unwrap();
        error.to_string()
    };
    assert_eq!(
        error(Path::new("a.txt")),
        "`a.txt` is plain text, which cannot be read here; expected a name ending in `.smi`, `.smi.gz`, `.csv` or `.csv.gz`; if each line is a SMILES, rename it to end in `.smi`"
    );
    assert!(error(Path::new("a.gz")).starts_with("cannot determine the format"));
    assert!(error(Path::new("smi")).starts_with("cannot determine the format"));
    assert_eq!(error(Path::new("none.smi")), "`none.smi` does not exist; check the path");
    let path = folder.path().join("folder.smi");
    std::fs::create_dir(&path).unwrap();
    let error = error(&path);
    assert!(error.starts_with("cannot read `"), "{error}");
    assert!(error.contains("it is a folder"), "{error}");
}

#[test]
fn a_gz_file_of_several_members_is_read_whole() {
    let mut bytes = gzip("C\n");
    bytes.extend(gzip("N\n"));
    let records: Vec<_> = reader(&bytes, Smi, true).unwrap().map(Result::unwrap).collect();
    assert_eq!(records, [record(1, "C", None, None), record(2, "N", None, None)]);
}

#[test]
fn damaged_files_are_named_with_the_line() {
    let not_utf8 = "line 2 of `x` is not UTF-8 text; save the file as UTF-8 (a compressed file's name must end in `.gz`)";
    assert_eq!(error(b"C\nC\xff\nC\n", Smi, false), not_utf8);
    assert_eq!(error(b"smiles\n\xff\nC\n", Csv, false), not_utf8);
    assert_eq!(error(b"smi\xff,smiles\nC\n", Csv, false), not_utf8.replace("line 2", "line 1"));
    assert_eq!(
        error(b"smiles,a\n\nC,1\nC,1,2\n", Csv, false),
        "line 4 of `x` has 3 fields, but the header has 2; quote fields that contain commas"
    );
    assert_eq!(
        error(b"", Csv, false),
        "`x` is empty; expected a line with the names of the columns, and a row per molecule"
    );
    assert_eq!(
        error(b"C\n", Smi, true),
        "`x` cannot be decompressed after line 0: unexpected end of file; compress the file again, or remove `.gz` from its name if it is plain text"
    );
    let text: String = (0..5000).map(|i| format!("C{}\n", i % 977)).collect();
    let whole = gzip(&text);
    let cut = error(&whole[..whole.len() - 10], Smi, true);
    assert!(cut.contains("cannot be decompressed after line "), "{cut}");
    assert!(!cut.contains("line 0"), "{cut}");
    let mut flipped = whole.clone();
    let last = flipped.len() - 6; // inside the checksum
    flipped[last] ^= 1;
    let flipped = error(&flipped, Smi, true);
    assert!(flipped.contains("after line 5000: corrupt"), "{flipped}");
    let csv = gzip("smiles\nC\nN\n");
    let cut = error(&csv[..csv.len() - 4], Csv, true);
    assert!(cut.contains("cannot be decompressed after line "), "{cut}");
}

proptest! {
    #[test]
    fn random_bytes_give_records_or_one_error(bytes: Vec<u8>, gz: bool, csv: bool) {
        let format = if csv { Csv } else { Smi };
        if let Ok(reader) = reader(&bytes, format, gz) {
            let results: Vec<_> = reader.collect();
            let errors = results.iter().filter(|result| result.is_err()).count();
            prop_assert!(errors == 0 || (errors == 1 && results.last().unwrap().is_err()));
        }
    }

    #[test]
    fn random_tables_give_records_with_a_smiles(text in "(smiles|Split|a)(,[a-z\"]{0,3}){0,2}\r?\n([C\" ,\r\né]{0,12}\n){0,6}") {
        if let Ok(reader) = reader(text.as_bytes(), Csv, false) {
            let lines = text.replace("\r\n", "\n").split(['\n', '\r']).count() as u64;
            for record in reader.map_while(Result::ok) {
                prop_assert!(!record.smiles.is_empty() && record.smiles.trim() == record.smiles);
                prop_assert!((2..=lines).contains(&record.line));
            }
        }
    }

    #[test]
    fn a_damaged_gz_file_never_panics(lines in prop::collection::vec("[CNO]{1,9}", 1..40), at: prop::sample::Index, bit in 0u8..8) {
        let mut bytes = gzip(&lines.join("\n"));
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(reader) = reader(&bytes, Smi, true) {
            reader.for_each(drop);
        }
    }
}

/// A line that exceeds the limit of 1 MiB.
fn endless() -> String {
    "C".repeat((1 << 20) + (1 << 17))
}

#[test]
fn a_line_without_an_end_is_refused() {
    let too_long =
        "the record is longer than 1 MiB; write one record per line, and close every quote";
    for gz in [false, true] {
        let bytes = |text: &str| if gz { gzip(text) } else { text.as_bytes().to_vec() };
        let lines = format!("CC\n{}\nCCC\n", endless());
        assert_eq!(error(&bytes(&lines), Smi, gz), format!("x:2: {too_long}"));
        let table = format!("smiles\nCC\n\"{}\nCCC\n", "C\n".repeat(1 << 20));
        assert_eq!(error(&bytes(&table), Csv, gz), format!("x:3: {too_long}"));
        assert_eq!(error(&bytes(&endless()), Csv, gz), format!("x:1: {too_long}"));
    }
}

#[test]
fn gzip_that_is_out_of_proportion_is_refused() {
    let long = format!("{}\n", "C".repeat(1 << 19));
    let fault = error(&gzip(&long.repeat(65 << 1)), Smi, true);
    let expect = "its data is more than 100 times larger than the file; provide the data uncompressed if that is intended";
    assert!(fault.starts_with("`x` cannot be read after line "), "{fault}");
    assert!(fault.ends_with(expect), "{fault}");
    let empty = gzip(&"\n".repeat(2 << 20));
    let fault = error(&empty, Smi, true);
    assert_eq!(fault, "x:100000: the previous 100000 lines are empty; remove empty lines");
    // Blank lines count towards the length of the following row.
    assert!(error(&empty, Csv, true).contains("is longer than 1 MiB"));
}

/// The CSV reader would join the quoted text and what follows it, i.e. `"CC"O` would become CCO.
#[test]
fn text_after_a_quoted_field_is_refused() {
    let fault = |line| {
        format!(
            "line {line} of `x` has text after a quoted field; quote the whole field, and escape quotes inside it by doubling them"
        )
    };
    for (table, line) in [
        ("smiles,name\n\"CC\"O,a\nCCC,\"a\"b\n", 2),
        ("smiles,name\nCC,a\nCCC,\"a\"b\n", 3),
        ("smiles,name\nCC,a\nCCC,\"a\" b", 3),
        ("smiles,name\nCC,\"a\" \"b\"\n", 2),
        ("\"smiles\"s,name\nCC,a\n", 1),
        ("smiles;name\nCC;\"a\nb\",\n", 3),
    ] {
        assert_eq!(error(table.as_bytes(), Csv, false), fault(line), "{table}");
    }
}

#[test]
fn small_gzip_of_millions_of_short_rows_is_refused() {
    let fault = error(&gzip(&"C\n".repeat(6 << 20)), Smi, true);
    assert!(fault.contains("more than 100 times larger than the file"), "{fault}");
}
