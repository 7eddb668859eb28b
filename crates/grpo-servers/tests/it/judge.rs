//! Pairs, judged by a server with recorded replies.

use crate::server::{Reply, Server, chat};
use grpo_eval::judge::{
    JudgeAnswer, JudgedPair, Pair, PairwiseSummary, ScoreSummary, ScoredText, score_question,
};
use grpo_eval::stats::Bootstrap;
use grpo_servers::{ChatAnswer, ChatSettings, Client, EndpointConfig};

/// Sends questions and returns the answers.
fn ask(server: &Server, questions: impl Iterator<Item = String>) -> Vec<Option<ChatAnswer>> {
    let mut client =
        Client::new(EndpointConfig { pause: 0.0, ..EndpointConfig::new(&server.url) }).unwrap();
    let settings = ChatSettings::new("judge");
    let requests: Vec<_> = questions.map(|question| settings.ask(question)).collect();
    let answers = client.send_all(&requests, |_| {}).unwrap();
    answers.into_iter().map(Result::ok).collect()
}

fn text(answer: &Option<ChatAnswer>) -> Option<JudgeAnswer<'_>> {
    let answer = answer.as_ref()?;
    Some(JudgeAnswer { text: &answer.text, is_truncated: answer.is_truncated })
}

fn judge(server: &Server, pairs: &[Pair]) -> PairwiseSummary {
    let answers = ask(server, pairs.iter().flat_map(|pair| pair.questions("Politeness.")));
    let judged: Vec<JudgedPair> = pairs
        .iter()
        .zip(answers.chunks_exact(2))
        .map(|(pair, answers)| JudgedPair::new(pair, [text(&answers[0]), text(&answers[1])]))
        .collect();
    PairwiseSummary::new(&judged, &Bootstrap { draws: 200, ..Bootstrap::default() }).unwrap()
}

/// `a` is better three times, `b` once, and once they are equal.
fn pairs() -> Vec<Pair> {
    let texts =
        [("good", "bad"), ("good", "bad"), ("bad", "good"), ("bad", "bad"), ("good", "bad")];
    let pair = |(index, (a, b)): (usize, (&str, &str))| Pair {
        id: index.to_string(),
        prompt: format!("prompt {}", index / 2),
        a: a.to_owned(),
        b: b.to_owned(),
    };
    texts.into_iter().enumerate().map(pair).collect()
}

#[test]
fn a_judge_that_reads_the_responses() {
    let server = Server::start(|_, request| {
        let is_good = |name: &str| request.text().contains(&format!("{name}:\n=====\ngood\n"));
        Reply::text(match (is_good("Response A"), is_good("Response B")) {
            (true, false) => "The first one is polite.\nVERDICT: A",
            (false, true) => "The second one is polite.\nVERDICT: B",
            _ => "Both are alike.\nVERDICT: TIE",
        })
    });
    let found = judge(&server, &pairs());
    assert_eq!((found.wins, found.ties, found.losses), (3, 1, 1));
    assert_eq!((found.win_rate, found.orders.agreement), (Some(0.7), Some(1.0)));
    assert_eq!(found.first_position, Some(0.0));
}

#[test]
fn a_judge_that_prefers_the_first_position() {
    let server = Server::script(vec![Reply::text("VERDICT: A")]);
    let found = judge(&server, &pairs());
    assert_eq!((found.wins, found.ties, found.losses), (0, 5, 0));
    assert_eq!((found.win_rate, found.first_position), (Some(0.5), Some(1.0)));
    assert_eq!((found.p_value, found.orders.agreement), (None, Some(0.0)));
}

/// Two answers cannot be parsed, two end at the token limit, and two questions have none.
#[test]
fn a_judge_that_rambles_is_counted() {
    let server = Server::start(|_, request| {
        let (is_1, is_2) =
            (request.text().contains("prompt 1"), request.text().contains("prompt 2"));
        match is_1 {
            true if request.text().contains("good") => Reply::text("It depends."),
            true => Reply::status(400),
            false if is_2 => Reply::Http(200, "", chat("It").replace("stop", "length")),
            false => Reply::text("VERDICT: TIE"),
        }
    });
    let found = judge(&server, &pairs());
    assert_eq!((found.pairs, found.judged), (5, 2));
    assert_eq!((found.unparsable, found.truncated, found.unanswered), (2, 2, 2));
}

#[test]
fn texts_are_scored() {
    let server = Server::start(|_, request| {
        Reply::text(match request.text().contains("\ngood\n") {
            true => "Kind.\nSCORE: 9",
            false => "SCORE: low",
        })
    });
    let pairs = pairs();
    let answers =
        ask(&server, pairs.iter().map(|pair| score_question("Kindness.", &pair.prompt, &pair.a)));
    let scored: Vec<ScoredText> = pairs
        .iter()
        .zip(&answers)
        .map(|(pair, answer)| ScoredText::new(&pair.id, &pair.prompt, &pair.a, text(answer)))
        .collect();
    let found =
        ScoreSummary::new(&scored, &Bootstrap { draws: 50, ..Bootstrap::default() }).unwrap();
    assert_eq!((found.texts, found.scored, found.unparsable), (5, 3, 2));
    assert_eq!((found.mean, found.counts[8]), (Some(9.0), 3));
}
