//! Tests for the geometry of drawings: bond lengths, hexagons, and lines that end before a label.

use grpo_chem::Molecule;

fn draw(smiles: &str) -> String {
    Molecule::parse(smiles).unwrap().draw().unwrap()
}

/// Returns `x1, y1, x2, y2` of each line.
fn lines(svg: &str) -> Vec<[f64; 4]> {
    let number = |line: &str, name: &str| -> f64 {
        let value = line.split(&format!(" {name}=\"")).nth(1).unwrap();
        value.split('"').next().unwrap().parse().unwrap()
    };
    let lines = svg.split("<line").skip(1);
    lines.map(|line| ["x1", "y1", "x2", "y2"].map(|name| number(line, name))).collect()
}

fn length([x1, y1, x2, y2]: &[f64; 4]) -> f64 {
    (x1 - x2).hypot(y1 - y2)
}

#[test]
fn benzene_is_a_regular_hexagon_with_three_inner_lines() {
    let svg = draw("c1ccccc1");
    let lines = lines(&svg);
    let (outer, inner): (Vec<&[f64; 4]>, Vec<&[f64; 4]>) =
        lines.iter().partition(|line| length(line) > 39.0);
    assert_eq!((outer.len(), inner.len()), (6, 3));
    let ends = || outer.iter().flat_map(|line| [(line[0], line[1]), (line[2], line[3])]);
    let middle = |of: fn(&(f64, f64)) -> f64| ends().map(|end| of(&end)).sum::<f64>() / 12.0;
    let (x, y) = (middle(|end| end.0), middle(|end| end.1));
    for end in ends() {
        // In a regular hexagon, the distance from the center to a corner equals the length of a
        // side.
        assert!((f64::hypot(end.0 - x, end.1 - y) - 40.0).abs() < 0.3, "{end:?}");
    }
    for line in &inner {
        let distance = f64::hypot((line[0] + line[2]) / 2.0 - x, (line[1] + line[3]) / 2.0 - y);
        let apothem = 40.0 * 0.75f64.sqrt();
        assert!(distance < apothem - 3.0, "{line:?} is not inside");
    }
    assert!(!svg.contains("<text"), "carbons of a ring have no letters");
}

#[test]
fn letters_hydrogens_charges_and_isotopes_are_written() {
    let small = |text: &str| format!("dy=\"4\">{text}</tspan>");
    let above = |text: &str| format!("dy=\"-6\">{text}</tspan>");
    for (smiles, expected) in [
        ("CCO", vec!["OH<".to_owned()]),
        ("OCC", vec![">OH<".to_owned(), ">HO<".to_owned()]),
        ("CCN", vec![small("2")]),
        ("CC(=O)[O-]", vec![above("−")]),
        ("C[N+](C)(C)C", vec![above("+")]),
        ("[Ca+2]", vec![above("2+")]),
        ("[13CH4]", vec![above("13"), small("4")]),
        ("CCl", vec![">Cl<".to_owned()]),
        ("C", vec![small("4")]),
    ] {
        let svg = draw(smiles);
        assert!(expected.iter().any(|text| svg.contains(text)), "{smiles}: {svg}");
    }
}

#[test]
fn bonds_have_as_many_lines_as_they_should() {
    for (smiles, expected) in [("CC", 1), ("C=C", 2), ("C#N", 3), ("CC(=O)C", 4), ("C.C", 0)] {
        assert_eq!(lines(&draw(smiles)).len(), expected, "{smiles}");
    }
}

#[test]
fn a_line_ends_in_front_of_a_letter() {
    // A bond between two carbons has a length of 40. A bond to oxygen is 11 shorter.
    let mut lengths: Vec<f64> = lines(&draw("CCO")).iter().map(length).collect();
    lengths.sort_by(f64::total_cmp);
    assert!((lengths[0] - 29.0).abs() < 0.3 && (lengths[1] - 40.0).abs() < 0.3, "{lengths:?}");
}

#[test]
fn every_molecule_of_the_fixtures_is_drawn_inside_its_frame_and_the_same_twice() {
    let text = include_str!("../fixtures/molecules.smi");
    let mut drawn = 0;
    for smiles in text.lines().filter_map(|line| line.split_whitespace().next()) {
        let Ok(molecule) = Molecule::parse(smiles) else { continue };
        let svg = molecule.draw().unwrap();
        assert_eq!(molecule.draw().unwrap(), svg, "{smiles}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{smiles}: {svg}");
        let frame = svg.split("viewBox=\"").nth(1).unwrap().split('"').next().unwrap();
        let frame: Vec<f64> = frame.split(' ').map(|number| number.parse().unwrap()).collect();
        for [x1, y1, x2, y2] in lines(&svg) {
            for (x, y) in [(x1, y1), (x2, y2)] {
                let inside = (frame[0]..=frame[0] + frame[2]).contains(&x)
                    && (frame[1]..=frame[1] + frame[3]).contains(&y);
                assert!(inside, "{smiles}: ({x}, {y}) is outside of {frame:?}");
            }
        }
        drawn += 1;
    }
    assert!(drawn > 50, "{drawn}");
}
