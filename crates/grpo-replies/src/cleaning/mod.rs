//! Selects training pairs by filtering, validating, cleaning, deduplicating and ranking them.

mod clean;
mod filter;
mod keys;
mod lists;
mod looks;
mod outcome;
mod validate;

use std::collections::BTreeMap;

use grpo_data::DataError;
use grpo_eval::Embedder;

pub use clean::{CleaningRules, clean_reply, quality};
pub use filter::CollectionFilter;
pub use outcome::{CleanedPairs, CleaningReport, Reason, RejectedPair};
pub use validate::ValidationRules;

use crate::PairRecord;

/// The cleaning steps in the order in which they run. Steps set to `None` are skipped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CleaningPlan {
    /// Filters for the collected pairs.
    pub filter: Option<CollectionFilter>,
    /// Validation rules for replies.
    pub validation: Option<ValidationRules>,
    /// Settings for text cleaning and deduplication.
    pub cleaning: Option<CleaningRules>,
}

impl CleaningPlan {
    /// Returns a plan that runs all steps with default settings.
    pub fn all() -> Self {
        Self {
            filter: Some(CollectionFilter::default()),
            validation: Some(ValidationRules::default()),
            cleaning: Some(CleaningRules::default()),
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// Returns an error for the first setting that is out of range.
    pub fn check(&self) -> Result<(), DataError> {
        self.filter.as_ref().map_or(Ok(()), CollectionFilter::check)?;
        self.validation.as_ref().map_or(Ok(()), ValidationRules::check)?;
        self.cleaning.as_ref().map_or(Ok(()), CleaningRules::check)
    }

    /// Runs the steps. `embedder` is used to find near duplicates.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range or a reply cannot be embedded.
    pub fn run(
        &self,
        pairs: Vec<PairRecord>,
        embedder: &dyn Embedder,
    ) -> Result<CleanedPairs, DataError> {
        self.check()?;
        let mut cleaned = CleanedPairs { pairs, ..CleanedPairs::default() };
        if let Some(filter) = &self.filter {
            let mut of_author = BTreeMap::new();
            cleaned.judge("filter", |pair, unknown| filter.faults(pair, &mut of_author, unknown));
        }
        if let Some(rules) = &self.validation {
            cleaned.judge("validation", |pair, unknown| rules.faults(pair, unknown));
        }
        if let Some(rules) = &self.cleaning {
            rules.run(&mut cleaned, embedder)?;
        }
        Ok(cleaned)
    }
}
