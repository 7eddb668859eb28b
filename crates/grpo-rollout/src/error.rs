//! What cannot be sampled.

use grpo_logprob::NotFinite;

/// Settings that cannot be sampled with.
#[derive(Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutError {
    /// Whoever asked for completions does not want them any more.
    #[error("sampling was interrupted")]
    Interrupted,
    /// A count of 0.
    #[error("{name} = 0 would sample nothing; use 1 or more")]
    Zero {
        /// The setting.
        name: &'static str,
    },
    /// There is nothing to continue.
    #[error("a prompt has no tokens; it needs at least the beginning mark")]
    EmptyPrompt,
    /// What every text has in it.
    #[error("an empty stop string would end every completion after its first token; leave it out")]
    EmptyStop,
    /// The policy cannot be sampled any more.
    #[error(transparent)]
    Diverged(#[from] NotFinite),
    /// An end mark that no model can give.
    #[error("the end id {id} is outside the vocabulary of {vocabulary} tokens")]
    EndId {
        /// The id.
        id: u32,
        /// Tokens in the vocabulary.
        vocabulary: usize,
    },
    /// A prompt of another vocabulary.
    #[error("a prompt has the id {id}, and the vocabulary has {vocabulary} tokens")]
    PromptId {
        /// The id.
        id: u32,
        /// Tokens in the vocabulary.
        vocabulary: usize,
    },
    /// A distribution that was checked against another vocabulary than the model's.
    #[error(
        "the sampling distribution is over {found} tokens and the model's vocabulary has {vocabulary}"
    )]
    Vocabulary {
        /// Tokens of the distribution.
        found: usize,
        /// Tokens in the model's vocabulary.
        vocabulary: usize,
    },
    /// Nothing is in front of a blank: all of them are filled at once.
    #[error(
        "sampling.repetition_penalty is about what was sampled before, and blanks are filled all at once; leave it out"
    )]
    PenaltyOfBlanks,
    /// A blank could stay one.
    #[error("the id {id} stands in blanks and could be drawn; it must be forbidden")]
    MaskAllowed {
        /// The id.
        id: u32,
    },
    /// There is nothing to fill.
    #[error(
        "text {prompt} has no blank, so there is nothing to fill; each text needs one at least"
    )]
    NoBlank {
        /// The prompt's index.
        prompt: u32,
    },
    /// A text that the model cannot see as a whole.
    #[error(
        "a text of {text} characters does not fit into the model's context of {context}; cut it, or take a model with a longer one"
    )]
    LongText {
        /// Its characters.
        text: usize,
        /// What the model can see.
        context: usize,
    },
    /// More tokens than the model can see.
    #[error("a prompt of {prompt} tokens and max_new_tokens = {max_new_tokens} do not fit into the model's context of {context} tokens; {}", at_most(*prompt, *context))]
    TooLong {
        /// Tokens of the longest prompt.
        prompt: usize,
        /// The setting.
        max_new_tokens: usize,
        /// Tokens that the model can see.
        context: usize,
    },
    /// A model that cannot say which characters are wrong.
    #[error(
        "the model has no critic (`critic` in its config.json), so it cannot say which characters are wrong"
    )]
    NoCritic,
    /// A part of a whole that is none.
    #[error("{name} of {value} is out of range; expected 0 to 1")]
    NoPart {
        /// What it is.
        name: &'static str,
        /// What it was.
        value: f64,
    },
    /// A schedule of another length.
    #[error("{ratios} remasking ratios are not one fewer than the {iterations} iterations")]
    Schedule {
        /// Ratios of the schedule.
        ratios: usize,
        /// Times that blanks are filled.
        iterations: usize,
    },
}

/// What would fit.
fn at_most(prompt: usize, context: usize) -> String {
    if prompt > context {
        return format!("a prompt may have at most {context}");
    }
    format!("max_new_tokens may be at most {}", context + 1 - prompt)
}
