//! The options that are lists of words: `args(a, b)`, `skip(a)`, `oom(event)` and `only(self)`.

use crate::errors::Errors;
use crate::suggest::nearest;
use crate::values::skip_to_comma;
use syn::ext::IdentExt as _;
use syn::parse::ParseStream;
use syn::{Ident, Token, token};

/// Which arguments are recorded as fields.
#[derive(Default)]
pub(crate) enum ArgumentNames {
    #[default]
    None,
    /// `args(a, b)`: these.
    Named(Vec<Ident>),
    /// `args`, or `skip(a, b)`: all but these.
    AllBut(Vec<Ident>),
}

impl ArgumentNames {
    pub(crate) fn read_args(word: &Ident, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Self> {
        if !input.peek(token::Paren) && !input.peek(Token![=]) {
            return Ok(Self::AllBut(Vec::new()));
        }
        words(word, "the names of arguments, as in `args(rows, columns)`", input, errors).map(Self::Named)
    }

    pub(crate) fn read_skip(word: &Ident, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Self> {
        words(word, "the names of arguments, as in `skip(weights)`", input, errors).map(Self::AllBut)
    }

    /// The arguments that the option names.
    pub(crate) fn named(&self) -> &[Ident] {
        match self {
            Self::None => &[],
            Self::Named(names) | Self::AllBut(names) => names,
        }
    }
}

/// What happens when memory runs out inside the function.
#[derive(Default, Clone, Copy)]
pub(crate) struct OomActions {
    pub(crate) event: bool,
    pub(crate) snapshot: bool,
}

impl OomActions {
    pub(crate) fn read(word: &Ident, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Self> {
        const WORDS: [&str; 2] = ["event", "snapshot"];
        let given = words(word, "a list of `event` and `snapshot`, as in `oom(event, snapshot)`", input, errors)?;
        check_words(word, &given, &WORDS, errors);
        Ok(Self { event: has(&given, "event"), snapshot: has(&given, "snapshot") })
    }
}

/// Which figures the span shows.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    pub(crate) device: bool,
    pub(crate) own: bool,
}

impl Default for Columns {
    fn default() -> Self {
        Self { device: true, own: false }
    }
}

impl Columns {
    pub(crate) fn read(word: &Ident, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Self> {
        const WORDS: [&str; 2] = ["device", "self"];
        let given = words(word, "a list of `device` and `self`, as in `only(self)`", input, errors)?;
        check_words(word, &given, &WORDS, errors);
        Ok(Self { device: has(&given, "device"), own: has(&given, "self") })
    }
}

fn has(words: &[Ident], word: &str) -> bool {
    words.iter().any(|given| given == word)
}

/// Reads `(a, b)` behind the word; each name at most once.
fn words(word: &Ident, example: &str, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Vec<Ident>> {
    let missing = || syn::Error::new_spanned(word, format!("`{word}` needs {example}"));
    if !input.peek(token::Paren) {
        return Err(missing());
    }
    let content;
    syn::parenthesized!(content in input);
    if content.is_empty() {
        return Err(missing());
    }
    let mut names: Vec<Ident> = Vec::new();
    while !content.is_empty() {
        match content.call(Ident::parse_any) {
            Ok(name) if !content.is_empty() && !content.peek(Token![,]) => {
                errors.push(content.error(format!("expected `,` after `{name}`")));
                skip_to_comma(&content)?;
            }
            Ok(name) if names.contains(&name) => errors.push_at(&name, format!("`{name}` given twice")),
            Ok(name) => names.push(name),
            Err(_) => {
                errors.push(content.error(format!("`{word}` needs {example}")));
                skip_to_comma(&content)?;
            }
        }
        content.parse::<Option<Token![,]>>()?;
    }
    Ok(names)
}

/// Reports each word that is none of those known.
fn check_words(option: &Ident, given: &[Ident], known: &[&str], errors: &mut Errors) {
    for word in given.iter().filter(|word| !known.iter().any(|known| *word == known)) {
        let text = word.to_string();
        let hint = match nearest(&text, known) {
            Some(known) => format!("did you mean `{known}`?"),
            None => {
                format!("there are {}", known.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" and "))
            }
        };
        errors.push_at(word, format!("unknown word `{text}` in `{option}`; {hint}"));
    }
}
