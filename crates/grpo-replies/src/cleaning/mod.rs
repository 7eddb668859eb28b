//! From collected pairs to those that are worth training on: filters, rules, clean texts, no duplicates, the best first.

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

/// What is done to pairs, in this order; a step without settings is left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CleaningPlan {
    /// Which pairs are collected.
    pub filter: Option<CollectionFilter>,
    /// What a reply must be like.
    pub validation: Option<ValidationRules>,
    /// How texts are cleaned, and what is a duplicate.
    pub cleaning: Option<CleaningRules>,
}

impl CleaningPlan {
    /// Everything, with default settings.
    pub fn all() -> Self {
        Self {
            filter: Some(CollectionFilter::default()),
            validation: Some(ValidationRules::default()),
            cleaning: Some(CleaningRules::default()),
        }
    }

    /// Looks for settings out of range.
    ///
    /// # Errors
    /// The first of them.
    pub fn check(&self) -> Result<(), DataError> {
        self.filter.as_ref().map_or(Ok(()), CollectionFilter::check)?;
        self.validation.as_ref().map_or(Ok(()), ValidationRules::check)?;
        self.cleaning.as_ref().map_or(Ok(()), CleaningRules::check)
    }

    /// Does it. `embedder` compares replies.
    ///
    /// # Errors
    /// Settings out of range, or a reply that the embedder makes no vector of.
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
