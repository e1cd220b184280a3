//! The attribute's options.
//!
//! A new option needs its word in [`OPTIONS`], its place in [`Args`] and its line in [`Args::read_option`]; unknown
//! words, repeated options and missing values are handled for all alike.

use crate::errors::Errors;
use crate::fields::Field;
use crate::prologue::at;
use crate::suggest::nearest;
use crate::text::{Text, bare};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::spanned::Spanned as _;
use syn::{Expr, ExprLit, ExprPath, Ident, Lit, LitStr, Path, Token, token};

/// Every option's word, for "did you mean".
const OPTIONS: &[&str] = &["name", "phase", "device", "fields", "level", "target", "err", "crate"];

/// The level's words, in tracing's order of numbers, 1 to 5.
const LEVELS: [&str; 5] = ["trace", "debug", "info", "warn", "error"];

/// The options given.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) name: Option<Text>,
    pub(crate) phase: Option<Text>,
    pub(crate) device: Option<Expr>,
    pub(crate) fields: Vec<Field>,
    pub(crate) level: Option<Level>,
    pub(crate) target: Option<Text>,
    /// The word `err`.
    pub(crate) err: Option<Ident>,
    pub(crate) krate: Option<Path>,
}

/// A span's level.
pub(crate) enum Level {
    /// One of tracing's, by its name in capitals, at the user's literal.
    Known(Ident),
    Constant(ExprPath),
}

impl Level {
    /// The level as an expression, given the path of the runtime's private module.
    pub(crate) fn tokens(&self, private: &TokenStream) -> TokenStream {
        match self {
            Self::Known(name) => quote_spanned!(name.span()=> #private::Level::#name),
            Self::Constant(path) => {
                let place = Span::mixed_site().located_at(path.span());
                let private = at(private, place);
                quote_spanned!(place=> #private::level(#path))
            }
        }
    }
}

impl Args {
    /// Reads the options; what is wrong goes to `errors`, and reading goes on after the next comma.
    pub(crate) fn read(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let read = |input: ParseStream<'_>| {
            let mut seen: Vec<String> = Vec::new();
            while !input.is_empty() {
                if let Err(error) = args.read_option(input, &mut seen, errors) {
                    errors.push(error);
                    skip_to_comma(input)?;
                } else if !input.is_empty() && !input.peek(Token![,]) {
                    errors.push(input.error("expected `,` before the next option"));
                    skip_to_comma(input)?;
                }
                input.parse::<Option<Token![,]>>()?;
            }
            Ok(())
        };
        if let Err(error) = read.parse2(tokens) {
            errors.push(error);
        }
        args
    }

    fn read_option(&mut self, input: ParseStream<'_>, seen: &mut Vec<String>, errors: &mut Errors) -> syn::Result<()> {
        if input.peek(LitStr) {
            let literal: LitStr = input.parse()?;
            once("name", &literal, seen)?;
            self.name = Some(Text::literal("name", literal)?);
            return Ok(());
        }
        if !input.peek(Ident::peek_any) {
            return Err(input.error("expected an option, as in `#[track_memory(phase = \"forward\")]`"));
        }
        let word = input.call(Ident::parse_any)?;
        let option = word.to_string();
        if !OPTIONS.contains(&option.as_str()) {
            return Err(unknown(&word));
        }
        // Reported where the option is read and not at the end: the value is then skipped with it.
        once(&option, &word, seen)?;
        match option.as_str() {
            "name" => self.name = Some(text(&word, input)?),
            "phase" => self.phase = Some(text(&word, input)?),
            "target" => self.target = Some(text(&word, input)?),
            "device" => self.device = Some(value(&word, "an allocator, as in `device = &self.allocator`", input)?),
            "level" => self.level = Some(level(&word, input)?),
            "crate" => self.krate = Some(path(&word, input)?),
            "fields" => self.fields = fields(&word, input, errors)?,
            _ => {
                if input.peek(Token![=]) || input.peek(token::Paren) {
                    return Err(syn::Error::new_spanned(&word, format!("`{option}` takes no value")));
                }
                self.err = Some(word);
            }
        }
        Ok(())
    }
}

/// Leaves the option that is being read: goes to the next comma outside of brackets.
fn skip_to_comma(input: ParseStream<'_>) -> syn::Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<proc_macro2::TokenTree>()?;
    }
    Ok(())
}

fn once(option: &str, place: &impl ToTokens, seen: &mut Vec<String>) -> syn::Result<()> {
    if seen.iter().any(|earlier| earlier == option) {
        return Err(syn::Error::new_spanned(place, format!("`{option}` given twice")));
    }
    seen.push(option.to_owned());
    Ok(())
}

fn unknown(word: &Ident) -> syn::Error {
    let text = word.to_string();
    let message = match nearest(&text, OPTIONS) {
        Some(option) => format!("unknown option `{text}`; did you mean `{option}`?"),
        None => {
            let all = OPTIONS.iter().map(|option| format!("`{option}`")).collect::<Vec<_>>().join(", ");
            format!("unknown option `{text}`; the options are {all}")
        }
    };
    syn::Error::new_spanned(word, message)
}

/// The `=` of an option that needs a value.
fn equals(word: &Ident, example: &str, input: ParseStream<'_>) -> syn::Result<()> {
    if !input.peek(Token![=]) {
        return Err(syn::Error::new_spanned(word, format!("`{word}` needs {example}")));
    }
    input.parse::<Token![=]>()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(syn::Error::new_spanned(word, format!("`{word}` needs {example}")));
    }
    Ok(())
}

fn value(word: &Ident, example: &str, input: ParseStream<'_>) -> syn::Result<Expr> {
    equals(word, example, input)?;
    input.parse()
}

fn text(word: &Ident, input: ParseStream<'_>) -> syn::Result<Text> {
    equals(word, &format!("a string, as in `{word} = \"…\"`"), input)?;
    Text::read(word, input)
}

fn path(word: &Ident, input: ParseStream<'_>) -> syn::Result<Path> {
    let example = "a path, as in `crate = my_library::memtrack`";
    equals(word, example, input)?;
    if input.peek(LitStr) {
        return Err(input.error(format!("`crate` needs {example}")));
    }
    // A path as in `use`: no generic arguments, and `crate` or `$crate` may stand first.
    input.call(Path::parse_mod_style)
}

fn level(word: &Ident, input: ParseStream<'_>) -> syn::Result<Level> {
    equals(word, "a level, as in `level = \"debug\"`", input)?;
    let known = |index: usize, span| Level::Known(Ident::new(&LEVELS[index].to_uppercase(), span));
    match bare(input.parse()?) {
        Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) => {
            let text = literal.value().to_lowercase();
            if let Some(index) = LEVELS.iter().position(|level| *level == text) {
                return Ok(known(index, literal.span()));
            }
            let hint = match nearest(&text, &LEVELS) {
                Some(level) => format!("did you mean `{level}`?"),
                None => "the levels are `trace`, `debug`, `info`, `warn` and `error`".to_owned(),
            };
            Err(syn::Error::new_spanned(&literal, format!("unknown level `{text}`; {hint}")))
        }
        Expr::Lit(ExprLit { lit: Lit::Int(literal), .. }) => match literal.base10_parse::<usize>() {
            Ok(number @ 1..=5) => Ok(known(number - 1, literal.span())),
            _ => Err(syn::Error::new_spanned(&literal, "a level's number is 1 (trace) to 5 (error)")),
        },
        Expr::Path(path) => Ok(Level::Constant(path)),
        other => Err(syn::Error::new_spanned(other, "`level` needs a name, a number or the path of a constant")),
    }
}

/// Reads each field by itself, so that one that is wrong hides no other.
fn fields(word: &Ident, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Vec<Field>> {
    if !input.peek(token::Paren) {
        return Err(syn::Error::new_spanned(word, "`fields` needs a list, as in `fields(rows = rows.len(), %name)`"));
    }
    let content;
    syn::parenthesized!(content in input);
    let mut fields = Vec::new();
    while !content.is_empty() {
        match content.parse() {
            Ok(field) if content.is_empty() || content.peek(Token![,]) => push_field(field, &mut fields, errors),
            Ok(_) => {
                errors.push(content.error("expected `,` before the next field"));
                skip_to_comma(&content)?;
            }
            Err(error) => {
                errors.push(error);
                skip_to_comma(&content)?;
            }
        }
        content.parse::<Option<Token![,]>>()?;
    }
    Ok(fields)
}

/// Adds a field, unless an earlier one has its name.
fn push_field(field: Field, fields: &mut Vec<Field>, errors: &mut Errors) {
    if fields.iter().any(|earlier| earlier.key() == field.key()) {
        errors.push_at(field.name(), format!("field `{}` given twice", field.key()));
    } else {
        fields.push(field);
    }
}
