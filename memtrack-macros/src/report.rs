//! The options `err` and `ret`: what is said about the value that a function returns.

use crate::errors::Errors;
use crate::level::Level;
use crate::prologue::at;
use crate::suggest::nearest;
use crate::values::skip_to_comma;
use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::ext::IdentExt as _;
use syn::parse::ParseStream;
use syn::{Ident, Token, token};

/// How a value is written, by the word that asks for it.
#[derive(Clone)]
pub(crate) enum Format {
    Display(Ident),
    Debug(Ident),
}

/// One of the options, with what it is given.
pub(crate) struct Report {
    /// `err` or `ret`.
    pub(crate) word: Ident,
    pub(crate) format: Option<Format>,
    pub(crate) level: Option<Level>,
}

impl Report {
    /// Whether `err` tells of the error: the word alone only tells the outcomes apart.
    pub(crate) fn has_event(&self) -> bool {
        self.format.is_some() || self.level.is_some()
    }

    /// Reads what may stand behind the word: `(Display)`, `(Debug)`, `(level = "…")`.
    pub(crate) fn read(word: Ident, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Self> {
        let mut report = Self { word, format: None, level: None };
        let word = &report.word;
        if input.peek(Token![=]) {
            return Err(syn::Error::new_spanned(word, format!("`{word}` takes no value; write `{word}(Debug)`")));
        }
        if input.peek(token::Paren) {
            let content;
            syn::parenthesized!(content in input);
            while !content.is_empty() {
                if let Err(error) = report.read_part(&content) {
                    errors.push(error);
                    skip_to_comma(&content)?;
                } else if !content.is_empty() && !content.peek(Token![,]) {
                    errors.push(content.error("expected `,`"));
                    skip_to_comma(&content)?;
                }
                content.parse::<Option<Token![,]>>()?;
            }
        }
        Ok(report)
    }

    fn read_part(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        const PARTS: [&str; 3] = ["Display", "Debug", "level"];
        let option = self.word.to_string();
        let part = input
            .call(Ident::parse_any)
            .map_err(|_| input.error(format!("expected `Display`, `Debug` or `level`, as in `{option}(Debug)`")))?;
        let text = part.to_string();
        match text.as_str() {
            "Display" | "Debug" if self.format.is_some() => {
                Err(syn::Error::new_spanned(&part, "use one of `Display` and `Debug`"))
            }
            "Display" => {
                self.format = Some(Format::Display(part));
                Ok(())
            }
            "Debug" => {
                self.format = Some(Format::Debug(part));
                Ok(())
            }
            "level" if self.level.is_some() => Err(syn::Error::new_spanned(&part, "`level` given twice")),
            "level" => {
                self.level = Some(Level::read(&part, input)?);
                Ok(())
            }
            _ => {
                let hint = match nearest(&text, &PARTS) {
                    Some(part) => format!("did you mean `{part}`?"),
                    None => "there are `Display`, `Debug` and `level`".to_owned(),
                };
                Err(syn::Error::new_spanned(&part, format!("unknown word `{text}` in `{option}`; {hint}")))
            }
        }
    }

    /// The event's level: the one given, or `default`.
    pub(crate) fn level_tokens(&self, private: &TokenStream, default: TokenStream) -> TokenStream {
        self.level.as_ref().map_or(default, |level| level.tokens(private))
    }

    /// The value of a variable as a field's value.
    pub(crate) fn value_tokens(&self, private: &TokenStream, variable: &Ident, default: Format) -> TokenStream {
        let format = self.format.clone().unwrap_or(default);
        // At the word that asks for it, where an error about a missing `Display` belongs.
        let (word, function) = match &format {
            Format::Display(word) => (word, "display"),
            Format::Debug(word) => (word, "debug"),
        };
        let place = Span::mixed_site().located_at(word.span());
        let private = at(private, place);
        let function = Ident::new(function, place);
        quote_spanned!(place=> #private::value(&#private::#function(&#variable)))
    }
}
