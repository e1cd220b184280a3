//! The option `fields(…)`: further fields of the span, in the syntax of tracing's `span!`.
//!
//! Read here and not left to `span!`, so that a slip is reported at the user's token and a name that memtrack writes
//! itself is refused.

use crate::errors::Errors;
use crate::prologue::{SpanField, at};
use crate::values::skip_to_comma;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Expr, Ident, LitStr, Token, token};

/// How tracing is told to render a value: `%` for `Display`, `?` for `Debug`.
enum Sigil {
    Display,
    Debug,
}

impl Sigil {
    fn parse_optional(input: ParseStream<'_>) -> syn::Result<Option<Self>> {
        Ok(if input.parse::<Option<Token![%]>>()?.is_some() {
            Some(Self::Display)
        } else if input.parse::<Option<Token![?]>>()?.is_some() {
            Some(Self::Debug)
        } else {
            None
        })
    }
}

/// A field's name: `a.b`, `"a b"` or `{CONSTANT}`.
enum Name {
    Dotted(Punctuated<Ident, Token![.]>),
    Literal(LitStr),
    Constant(token::Brace, Expr),
}

impl Name {
    /// The name as text, where it is known here.
    fn text(&self) -> Option<String> {
        match self {
            Self::Dotted(words) => {
                Some(words.iter().map(|word| word.unraw().to_string()).collect::<Vec<_>>().join("."))
            }
            Self::Literal(literal) => Some(literal.value()),
            Self::Constant(..) => None,
        }
    }
}

impl Name {
    /// The name as a constant expression.
    fn constant(&self) -> TokenStream {
        match self.text() {
            Some(text) => LitStr::new(&text, self.span()).into_token_stream(),
            None => self.to_token_stream(),
        }
    }
}

impl Parse for Name {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(LitStr) {
            Ok(Self::Literal(input.parse()?))
        } else if input.peek(token::Brace) {
            let content;
            let brace = syn::braced!(content in input);
            Ok(Self::Constant(brace, content.parse()?))
        } else if input.peek(Ident::peek_any) {
            Ok(Self::Dotted(Punctuated::parse_separated_nonempty_with(input, Ident::parse_any)?))
        } else {
            Err(input.error("expected a field: `name = value`, `%name`, `?name` or `name`"))
        }
    }
}

impl ToTokens for Name {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Self::Dotted(words) => words.to_tokens(tokens),
            Self::Literal(literal) => literal.to_tokens(tokens),
            Self::Constant(brace, constant) => brace.surround(tokens, |tokens| constant.to_tokens(tokens)),
        }
    }
}

/// One field.
pub(crate) struct Field {
    name: Name,
    value: Value,
}

enum Value {
    /// `name = value`.
    Given(Option<Sigil>, Expr),
    /// `%name` or `?name`.
    Shorthand(Sigil),
    /// `name`: declared, for the body to record.
    Empty,
}

impl Parse for Field {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let sigil = Sigil::parse_optional(input)?;
        let name: Name = input.parse()?;
        if let Some(text) = name.text()
            && text.split('.').next() == Some("mem")
        {
            return Err(syn::Error::new_spanned(
                &name,
                format!("`{text}`: fields that begin with `mem.` are `#[track_memory]`'s own; choose another name"),
            ));
        }
        let value = match sigil {
            Some(sigil) => {
                let Name::Dotted(_) = name else {
                    return Err(syn::Error::new_spanned(&name, "expected a variable or a field of one, as in `%a.b`"));
                };
                Value::Shorthand(sigil)
            }
            None if input.peek(Token![=]) => {
                input.parse::<Token![=]>()?;
                Value::Given(Sigil::parse_optional(input)?, input.parse()?)
            }
            None => Value::Empty,
        };
        if let (Value::Empty, Some("self")) = (&value, name.text().as_deref()) {
            let message = "`self` alone declares an empty field; write `?self` to record it, or `args(self)`";
            return Err(syn::Error::new_spanned(&name, message));
        }
        Ok(Self { name, value })
    }
}

impl Field {
    /// Where the field is named.
    fn name(&self) -> &impl ToTokens {
        &self.name
    }

    /// What two fields of the same name have in common: the name, or the constant in braces that holds it.
    pub(crate) fn key(&self) -> String {
        self.name.text().unwrap_or_else(|| self.name.to_token_stream().to_string())
    }

    /// The field of the span, given the path of the runtime's private module.
    pub(crate) fn described(&self, private: &TokenStream) -> SpanField {
        let Self { name, value } = self;
        let (sigil, expression) = match value {
            Value::Given(sigil, expression) => (sigil.as_ref(), expression.to_token_stream()),
            Value::Shorthand(sigil) => (Some(sigil), name.to_token_stream()),
            Value::Empty => return SpanField { name: name.constant(), value: None },
        };
        // The calls stand at the user's expression, where an error about its type belongs.
        let place = Span::mixed_site().located_at(expression.span());
        let private = at(private, place);
        let value = match sigil {
            None => quote_spanned!(place=> #private::value(&(#expression))),
            Some(Sigil::Display) => quote_spanned!(place=> #private::value(&#private::display(&&(#expression)))),
            Some(Sigil::Debug) => quote_spanned!(place=> #private::value(&#private::debug(&&(#expression)))),
        };
        SpanField { name: name.constant(), value: Some(value) }
    }
}

/// Reads the list; each field by itself, so that one that is wrong hides no other.
pub(crate) fn read_fields(word: &Ident, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Vec<Field>> {
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
