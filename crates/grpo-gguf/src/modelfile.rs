//! The `Modelfile` from which Ollama creates a model.

use std::fmt::Write;

/// What a `Modelfile` contains. Paths are relative to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Modelfile<'a> {
    /// The file of the model, or for an adapter the name or file of its base.
    pub from: &'a str,
    /// The file of an adapter.
    pub adapter: Option<&'a str>,
    /// The chat template of the model (Jinja).
    pub chat_template: Option<&'a str>,
    /// A user's message alone, as the chat template renders it. It contains the system message that the
    /// template adds to a conversation without one.
    pub conversation: Option<&'a str>,
    /// Texts of tokens that end a reply.
    pub stops: &'a [&'a str],
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Context length in tokens.
    pub context: Option<usize>,
}

/// A chat template that is known.
struct Known {
    /// What begins and ends the content of a system message. Chat templates contain the former.
    system: [&'static str; 2],
    /// The template in Ollama's language, which has the syntax of Go.
    template: &'static str,
}

const TEMPLATES: [Known; 2] = [
    Known {
        system: ["<|im_start|>system\n", "<|im_end|>"],
        template: "{{- range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}<|im_start|>assistant\n",
    },
    Known {
        system: ["<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"],
        template: "{{- range .Messages }}<|start_header_id|>{{ .Role }}<|end_header_id|>\n\n{{ .Content }}<|eot_id|>{{ end }}<|start_header_id|>assistant<|end_header_id|>\n\n",
    },
];

impl Known {
    /// Returns whether a chat template writes messages like this one.
    fn is_like(&self, chat_template: &str) -> bool {
        let [start, _] = self.system;
        chat_template.contains(start.split_inclusive('>').next().unwrap_or(start))
    }

    /// Returns the system message in a conversation.
    fn system_of<'a>(&self, conversation: &'a str) -> Option<&'a str> {
        let [start, end] = self.system;
        let content = conversation.split_once(start)?.1.split_once(end)?.0;
        // Three quotes end a text in a Modelfile.
        let is_whole = !content.contains("\"\"\"") && !content.ends_with('"');
        (is_whole && !content.is_empty()).then_some(content)
    }
}

impl std::fmt::Display for Modelfile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "# Create the model with: ollama create NAME -f Modelfile")?;
        writeln!(f, "FROM {}", self.from)?;
        if let Some(adapter) = self.adapter {
            writeln!(f, "ADAPTER {adapter}")?;
        }
        let is_like = |known: &&Known| self.chat_template.is_some_and(|text| known.is_like(text));
        let known = TEMPLATES.iter().find(is_like);
        match (known, self.chat_template) {
            (Some(known), _) => {
                writeln!(f, "TEMPLATE \"\"\"{}\"\"\"", known.template)?;
                if let Some(system) = self.conversation.and_then(|text| known.system_of(text)) {
                    writeln!(f, "SYSTEM \"\"\"{system}\"\"\"")?;
                }
            }
            (None, Some(_)) => {
                f.write_str("# The chat template has no counterpart here; Ollama looks for one that resembles it.\n")?;
            }
            (None, None) => f.write_str("TEMPLATE {{ .Prompt }}\n")?,
        }
        for stop in self.stops {
            writeln!(f, "PARAMETER stop {}", quoted(stop))?;
        }
        if let Some(temperature) = self.temperature {
            writeln!(f, "PARAMETER temperature {temperature}")?;
        }
        if let Some(context) = self.context {
            writeln!(f, "PARAMETER num_ctx {context}")?;
        }
        Ok(())
    }
}

/// Returns a text in quotes, on one line.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            other => {
                let _ = quoted.write_char(other);
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_files_template_and_parameters() {
        let modelfile = Modelfile {
            from: "./model-q8_0.gguf",
            chat_template: Some("{% for m in messages %}<|im_start|>..."),
            stops: &["<|im_end|>"],
            temperature: Some(0.7),
            context: Some(2048),
            ..Modelfile::default()
        };
        let expected = "# Create the model with: ollama create NAME -f Modelfile
FROM ./model-q8_0.gguf
TEMPLATE \"\"\"{{- range .Messages }}<|im_start|>{{ .Role }}
{{ .Content }}<|im_end|>
{{ end }}<|im_start|>assistant
\"\"\"
PARAMETER stop \"<|im_end|>\"
PARAMETER temperature 0.7
PARAMETER num_ctx 2048
";
        assert_eq!(modelfile.to_string(), expected);
        let of = |conversation| Modelfile { conversation: Some(conversation), ..modelfile };
        let found =
            of("<|im_start|>system\nYou are Qwen.<|im_end|>\n<|im_start|>user\nx<|im_end|>\n");
        assert_eq!(
            found.to_string(),
            expected.replace("PARAMETER stop", "SYSTEM \"\"\"You are Qwen.\"\"\"\nPARAMETER stop")
        );
        for other in
            ["<|im_start|>user\nx<|im_end|>\n", "<|im_start|>system\n\"\"\"\nFROM x<|im_end|>"]
        {
            assert_eq!(of(other).to_string(), expected);
        }
        let adapter = Modelfile { from: "base", adapter: Some("./a.gguf"), ..Modelfile::default() };
        assert!(
            adapter.to_string().contains("FROM base\nADAPTER ./a.gguf\nTEMPLATE {{ .Prompt }}\n")
        );
    }
}
