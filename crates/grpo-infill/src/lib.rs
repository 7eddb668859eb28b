#![doc = include_str!("../README.md")]

mod characters;
mod commands;
mod denoising;
mod eval_suite;
mod families;
mod fill;
mod infilling;
mod judge;
mod masked_lm;
mod masked_stream;
mod masking;
mod passages;
mod prepared_batches;
mod reward;
mod sections;
mod sequence_scorer;
mod task;
mod token_classifier;

pub use characters::{BLANK, Characters};
pub use denoising::{
    Critic, Denoising, DenoisingSettings, Filled, Quality, RemaskRule, RemaskSchedule, Trust,
    Wrongness,
};
pub use families::{
    FAMILIES, INFILLER, InfillerConfig, SEQUENCE_SCORER, TOKEN_CLASSIFIER, formats,
};
pub use infilling::{FillBlanks, Infilling, InfillingSettings};
pub use judge::{
    CorrelationScaling, FillSettings, JUDGE_METRICS, JudgeConfig, JudgeData, JudgeGate,
    JudgeMeasures, JudgeObjective, JudgeReport, JudgeScaling, JudgeValidationConfig,
    VarianceScaling, corruption_target, measure_judge,
};
pub use masked_lm::{
    CriticConfig, CriticScope, DEFAULT_EVAL_BATCHES, EntropyWeighting, JudgeWeighting,
    MASKED_LM_METRICS, MaskRatioWeighting, MaskedLmConfig, MaskedLmMeasures, MaskedLmObjective,
    ModifierConfig,
};
pub use masked_stream::{MASKED_PROMPTS, MASKING, MaskedData, MaskedStream};
pub use masking::{Corruption, MaskedText, Masking, MaskingPlan, MaskingPreset};
pub use passages::{PassageOptions, PassageReport, PassageUnit, Passages, Split};
pub use reward::{InfillReward, Judge};
pub use sequence_scorer::SequenceScorer;
pub use task::Infill;
pub use token_classifier::TokenClassifier;
