//! The keys of a component.

use std::path::PathBuf;

use grpo_chem::{Molecule, Morgan, MorganRadius};
use grpo_data::{ConfigFault, short_text};
use grpo_rewards::{Desirability, Goal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::goals::{default_goal, typical_range};
use super::property_names::check_name;

/// The keys of a component.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ComponentFields {
    /// What is scored, a [descriptor or another property](#components).
    #[schemars(extend("x-basic" = true))]
    pub(super) property: String,
    /// Name in metrics and tables. Default: the property.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    /// Weight in the mean; the weights are divided by their sum. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1e6), extend("x-basic" = true))]
    pub(super) weight: Option<f64>,
    /// Instead of a weight: the reward is 0 if this score is below 0.5. Filters are computed first:
    /// `external` rewards are not asked for molecules that do not pass, and filters that are
    /// `external` are asked before other external rewards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("x-basic" = true))]
    pub(super) filter: bool,
    /// `high`, `low` or `range`: which values are desirable. Default: by property.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-basic" = true))]
    goal: Option<Goal>,
    /// Lower bound of the default transform; required for `range`. Default: by property.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-basic" = true))]
    low: Option<f64>,
    /// Upper bound of the default transform; required for `range`. Default: by property.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-basic" = true))]
    high: Option<f64>,
    /// The function from the property to the score; excludes `low` and `high`. Default: by goal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) transform: Option<Desirability>,
    /// `similarity`, `scaffold` and `novelty`: the given molecules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) smiles: Option<Vec<String>>,
    /// `substructure`, `substructure_count` and `custom_alerts`: SMARTS patterns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) smarts: Option<Vec<String>>,
    /// File with more molecules (`.smi` or `.csv`, also `.gz`) or patterns (a SMARTS at the
    /// beginning of each line).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<PathBuf>,
    /// Whether `file` is read. Otherwise, its contents are left out.
    #[serde(skip)]
    pub(super) reads_file: bool,
    /// `similarity`: type of the Morgan fingerprint. Default: counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fingerprint: Option<FingerprintName>,
    /// `similarity`: radius of the fingerprint, 2 or 3. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 3))]
    pub(super) radius: Option<u8>,
    /// `formula`: molecular formula in Hill order.
    #[serde(skip_serializing_if = "Option::is_none")]
    formula: Option<String>,
    /// `expression`: arithmetic expression of the properties of preceding components, such as
    /// `"logp - 0.5 * rings"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expression: Option<String>,
    /// `external`: another reward, such as `{ type = "python", file = "dock.py" }`, which is asked
    /// only for valid molecules that pass the filters before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "grpo_rewards::schema::any_reward")]
    pub(super) reward: Option<Table>,
}

/// The type of a Morgan fingerprint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum FingerprintName {
    /// Counts of environments, as in REINVENT 4.
    #[default]
    Counts,
    /// 2,048 bits.
    Bits,
}

impl FingerprintName {
    /// Returns the fingerprint for a radius of 2 or 3.
    pub(super) fn with_radius(self, radius: u8) -> Morgan {
        let radius = if radius == 2 { MorganRadius::Two } else { MorganRadius::Three };
        match self {
            Self::Counts => Morgan::Counts(radius),
            Self::Bits => Morgan::Bits(radius),
        }
    }
}

impl ComponentFields {
    /// Returns the name, which [`Self::complete`] sets.
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.property)
    }

    /// Checks the combination of keys and fills in the defaults.
    pub(super) fn complete(&mut self) -> Result<(), ConfigFault> {
        // Neither other keys nor a goal mean anything for an unknown property.
        check_name(&self.property)?;
        self.check_keys()?;
        self.name.get_or_insert_with(|| self.property.clone());
        if !self.filter {
            let weight = *self.weight.get_or_insert(1.0);
            if !(0.0..=1e6).contains(&weight) {
                return Err(ConfigFault::out_of_range("weight", weight, "0 to 1e6"));
            }
        }
        if let Some(radius) = self.radius.filter(|radius| ![2, 3].contains(radius)) {
            return Err(ConfigFault::out_of_range("radius", radius.into(), "2 or 3"));
        }
        let own = self.transform.as_ref().and_then(Desirability::goal);
        let goal = self.goal.or(own).or_else(|| default_goal(&self.property));
        let transform = match (&self.transform, goal) {
            (Some(transform), _) => transform.clone(),
            (None, Some(goal)) => self.default_transform(goal)?,
            (None, None) => {
                let name = self.name();
                let message = format!("component '{name}' has no goal");
                let remedy = "set goal to \"high\", \"low\" or \"range\"";
                return Err(ConfigFault::new("goal", message, remedy));
            }
        };
        let fault = |message: String| ConfigFault::from_sentence("transform", message);
        transform.check().map_err(|message| {
            // The user has not named the transform that a goal stands for.
            let message = match (&self.transform, goal) {
                (None, Some(goal)) => {
                    let own = format!("transform {}", transform.type_name());
                    message.replacen(&own, &format!("goal = \"{}\"", word(goal)), 1)
                }
                _ => message,
            };
            fault(format!("component '{}': {message}", self.name()))
        })?;
        if let Some((own, goal)) = own.zip(self.goal).filter(|(own, goal)| own != goal) {
            return Err(fault(format!(
                "component '{}' has goal = \"{}\", but transform {} rewards {}; change one of them",
                self.name(),
                word(goal),
                transform.type_name(),
                ["high values", "low values", "a range"][own as usize]
            )));
        }
        (self.goal, self.transform) = (goal, Some(transform));
        (self.low, self.high) = (None, None);
        Ok(())
    }

    /// Returns the transform that follows from the property and the goal.
    fn default_transform(&self, goal: Goal) -> Result<Desirability, ConfigFault> {
        let (low, high) = match (goal, self.low, self.high) {
            (_, Some(low), Some(high)) => (low, high),
            (Goal::Range, ..) => {
                let message = format!("component '{}' has goal = \"range\"", self.name());
                return Err(ConfigFault::new("goal", message, "set its bounds `low` and `high`"));
            }
            _ => {
                let (low, high) = typical_range(&self.property);
                (self.low.unwrap_or(low), self.high.unwrap_or(high))
            }
        };
        Ok(Desirability::of_goal(goal, low, high))
    }

    /// Checks that all keys have an effect and that the required ones are set.
    fn check_keys(&self) -> Result<(), ConfigFault> {
        let property = self.property.as_str();
        let of_patterns = ["substructure", "substructure_count", "custom_alerts"];
        let has_transform = self.transform.is_some();
        let has_molecules = ["similarity", "scaffold", "novelty"].contains(&property);
        let has_patterns = of_patterns.contains(&property);
        let keys = [
            ("smiles", self.smiles.is_some(), has_molecules),
            ("smarts", self.smarts.is_some(), has_patterns),
            ("file", self.file.is_some(), has_molecules || has_patterns),
            ("fingerprint", self.fingerprint.is_some(), property == "similarity"),
            ("radius", self.radius.is_some(), property == "similarity"),
            ("formula", self.formula.is_some(), property == "formula"),
            ("expression", self.expression.is_some(), property == "expression"),
            ("reward", self.reward.is_some(), property == "external"),
            ("weight", self.weight.is_some(), !self.filter),
            ("low", self.low.is_some(), !has_transform),
            ("high", self.high.is_some(), !has_transform),
        ];
        for (key, is_set, is_used) in keys {
            if is_set && !is_used {
                let reason = match key {
                    "weight" => "a component with filter = true".to_owned(),
                    "low" | "high" => "a component with `transform`".to_owned(),
                    _ => format!("property '{property}'"),
                };
                let message = format!("{key} has no effect for {reason}");
                return Err(ConfigFault::new(key, message, "remove it"));
            }
        }
        let is_required = |key: &str| match key {
            "smiles" => self.file.is_none(),
            "smarts" => self.file.is_none() && property != "custom_alerts",
            _ => ["formula", "expression", "reward"].contains(&key),
        };
        match keys.iter().find(|(key, is_set, is_used)| *is_used && !is_set && is_required(key)) {
            Some((key, ..)) => {
                let or_file = if ["smiles", "smarts"].contains(key) { " or `file`" } else { "" };
                let message = format!("property '{property}' requires the key `{key}`{or_file}");
                Err(ConfigFault::new("property", message, ""))
            }
            None => Ok(()),
        }
    }

    /// Returns the formula if it is one.
    pub(super) fn formula(&self) -> Result<String, ConfigFault> {
        let formula = self.formula.clone().unwrap_or_default();
        match is_hill_formula(&formula) {
            true => Ok(formula),
            false => Err(ConfigFault::new(
                "formula",
                format!("'{}' is not a molecular formula in Hill order", short_text(&formula)),
                "list carbon first, then hydrogen, then the other elements alphabetically, for example C9H8O4 or C4H12N+",
            )),
        }
    }
}

/// Returns whether a text is a formula as RDKit's `CalcMolFormula` writes it.
fn is_hill_formula(text: &str) -> bool {
    let (atoms, charge) = text.split_at(text.find(['+', '-']).unwrap_or(text.len()));
    // A count or charge of 1 is left out.
    let is_count = |digits: &str| {
        digits.is_empty()
            || digits.parse::<u32>().is_ok_and(|count| count > 1 && !digits.starts_with('0'))
    };
    let starts = atoms.match_indices(|c: char| c.is_ascii_uppercase()).map(|(start, _)| start);
    let ends = starts.clone().skip(1).chain([atoms.len()]);
    let parts: Vec<(&str, &str)> = starts
        .zip(ends)
        .map(|(start, end)| {
            let part = &atoms[start..end];
            part.split_at(part.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(part.len()))
        })
        .collect();
    let rank = |symbol: &str| match symbol {
        "C" => (0, String::new()),
        "H" => (1, String::new()),
        other => (2, other.to_owned()),
    };
    let is_element = |symbol: &str| Molecule::parse(&format!("[{symbol}]")).is_ok();
    atoms.starts_with(|c: char| c.is_ascii_uppercase())
        && parts.iter().all(|(symbol, count)| is_element(symbol) && is_count(count))
        && parts.windows(2).all(|pair| rank(pair[0].0) < rank(pair[1].0))
        && is_count(charge.strip_prefix(['+', '-']).unwrap_or_default())
}

fn word(goal: Goal) -> &'static str {
    match goal {
        Goal::High => "high",
        Goal::Low => "low",
        Goal::Range => "range",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first row has outputs of RDKit's `CalcMolFormula`.
    #[test]
    fn formulas_are_in_hill_order() {
        for formula in
            ["C9H8O4", "H2O", "CHCl3", "C2H5NO2", "C4H12N+", "CO3-2", "ClNa", "HBr", "H3B", "C"]
        {
            assert!(is_hill_formula(formula), "{formula}");
        }
        for text in [
            "", "Xx2", "HC2", "C-1", "C1H4", "c6", "O2C", "C9H8O4 ", "C02", "C2H4+-", "CC", "+2",
            "2C",
        ] {
            assert!(!is_hill_formula(text), "{text}");
        }
    }
}
