//! Default word lists for cleaning.

/// Common English words that are rare in related languages.
pub(super) const ENGLISH_WORDS: [&str; 117] = [
    "the", "and", "that", "have", "has", "had", "it", "it's", "for", "not", "with", "you",
    "you're", "your", "this", "but", "his", "they", "we", "she", "or", "my", "all", "would",
    "there", "their", "what", "out", "about", "who", "get", "which", "when", "make", "can",
    "can't", "like", "just", "him", "know", "take", "into", "some", "could", "them", "other",
    "than", "then", "now", "look", "only", "its", "over", "think", "also", "back", "after", "use",
    "how", "our", "work", "well", "is", "are", "was", "of", "to", "i", "i'm", "don't", "that's",
    "been", "those", "these", "did", "does", "do", "doing", "good", "very", "any", "every", "many",
    "why", "while", "should", "at", "by", "from", "again", "must", "never", "always", "if", "too",
    "will", "more", "were", "because", "through", "two", "until", "nobody", "everyone", "someone",
    "here", "there's", "let's", "next", "own", "each", "such", "goes", "great", "best", "nice",
    "still",
];

/// Words that are typical of cryptocurrency spam.
pub(super) const CRYPTO_WORDS: [&str; 15] = [
    "crypto",
    "cryptocurrency",
    "bitcoin",
    "btc",
    "ethereum",
    "eth",
    "nft",
    "nfts",
    "blockchain",
    "token",
    "airdrop",
    "hodl",
    "web3",
    "defi",
    "gm",
];

/// Stop words, which do not count as content.
pub(super) const STOP_WORDS: [&str; 18] = [
    "the", "and", "for", "that", "this", "with", "you", "are", "was", "but", "not", "have", "has",
    "can", "all", "its", "your", "they",
];

/// Generic phrases that could be a reply to any tweet.
pub(super) const GENERIC_PHRASES: [&str; 15] = [
    "great post",
    "nice post",
    "love this",
    "so true",
    "well said",
    "i agree",
    "totally agree",
    "thanks for sharing",
    "good point",
    "great point",
    "this is great",
    "this is amazing",
    "couldn't agree more",
    "keep it up",
    "good luck",
];
