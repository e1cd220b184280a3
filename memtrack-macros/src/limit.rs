//! Sizes, counts and rates. What is written as a literal is read, and refused, while the attribute is expanded.

use crate::prologue::at;
use crate::text::bare;
use crate::values::equals;
use memtrack_units::parse_size;
use proc_macro2::{Literal, Span, TokenStream};
use quote::{ToTokens as _, quote_spanned};
use syn::parse::ParseStream;
use syn::spanned::Spanned as _;
use syn::{Expr, ExprLit, ExprUnary, Ident, Lit, LitInt, LitStr, Token, UnOp, token};

/// A number that a budget compares with.
pub(crate) enum Limit {
    Known(i64),
    /// A constant, or an expression of constants.
    Constant(Expr),
    /// An expression of numbers alone, as `2 << 20`.
    Numbers(Expr),
}

impl Limit {
    /// Reads `= "2GiB"`, `= 4096` or `= CONSTANT` behind the word; numbers are bytes.
    pub(crate) fn read_size(word: &Ident, input: ParseStream<'_>) -> syn::Result<Self> {
        let example = format!("a size, as in `{word} = \"2GiB\"`, or a number of bytes");
        equals(word, &example, input)?;
        match bare(input.parse()?) {
            Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) => Self::size(word, &literal),
            other => Self::number(word, &example, other),
        }
    }

    /// Reads `= 3` or `= CONSTANT` behind the word.
    pub(crate) fn read_count(word: &Ident, input: ParseStream<'_>) -> syn::Result<Self> {
        let example = format!("a number, as in `{word} = 0`");
        equals(word, &example, input)?;
        Self::number(word, &example, input.parse()?)
    }

    /// As [`Limit::read_size`], where the word alone means none at all.
    pub(crate) fn read_allowance(word: &Ident, input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(Token![=]) {
            return Self::read_size(word, input);
        }
        if input.peek(token::Paren) {
            let message = format!("`{word}` stands alone or takes a size, as in `{word} = \"1MiB\"`");
            return Err(syn::Error::new_spanned(word, message));
        }
        Ok(Self::Known(0))
    }

    fn size(word: &Ident, literal: &LitStr) -> syn::Result<Self> {
        let wrong = |message: String| Err(syn::Error::new_spanned(literal, message));
        let text = literal.value();
        if text.trim_start().starts_with('-') {
            return wrong(negative(word));
        }
        match parse_size(&text).map(i64::try_from) {
            Ok(Ok(bytes)) => Ok(Self::Known(bytes)),
            Ok(Err(_)) => wrong(format!("`{text}` is more than 2^63 - 1 bytes, the most that is counted")),
            Err(error) => wrong(error.to_string()),
        }
    }

    fn number(word: &Ident, example: &str, expression: Expr) -> syn::Result<Self> {
        match bare(expression) {
            Expr::Lit(ExprLit { lit: Lit::Int(literal), .. }) => match whole(&literal)? {
                Ok(number) => Ok(Self::Known(number)),
                Err(()) => Err(syn::Error::new_spanned(&literal, "more than 2^63 - 1, the most that is counted")),
            },
            minus @ Expr::Unary(ExprUnary { op: UnOp::Neg(_), .. }) => {
                Err(syn::Error::new_spanned(minus, negative(word)))
            }
            numbers if is_of_numbers(&numbers) => Ok(Self::Numbers(numbers)),
            // Without a name in it rustc could not tell its type.
            constant if names_something(&constant) => Ok(Self::Constant(constant)),
            other => Err(syn::Error::new_spanned(other, format!("`{word}` needs {example}, or a constant"))),
        }
    }

    /// The number as a constant expression of type `i64`, given the path of the runtime's private module.
    pub(crate) fn tokens(&self, private: &TokenStream) -> TokenStream {
        match self {
            Self::Known(number) => Literal::i64_suffixed(*number).to_token_stream(),
            Self::Constant(constant) => {
                let place = Span::mixed_site().located_at(constant.span());
                let private = at(private, place);
                quote_spanned!(place=> #private::Limit(#constant).get())
            }
            Self::Numbers(numbers) => {
                let place = Span::mixed_site().located_at(numbers.span());
                let private = at(private, place);
                quote_spanned!(place=> #private::Limit::<i64>(#numbers).get())
            }
        }
    }

    /// The constant, if that is what is given.
    pub(crate) fn constant(&self) -> Option<&Expr> {
        match self {
            Self::Known(_) | Self::Numbers(_) => None,
            Self::Constant(constant) => Some(constant),
        }
    }
}

/// Whether an expression has nothing but whole numbers in it.
fn is_of_numbers(expression: &Expr) -> bool {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Int(_), .. }) => true,
        Expr::Paren(inner) => is_of_numbers(&inner.expr),
        Expr::Group(inner) => is_of_numbers(&inner.expr),
        Expr::Binary(binary) => is_of_numbers(&binary.left) && is_of_numbers(&binary.right),
        _ => false,
    }
}

/// Whether an expression of numbers and constants has a constant in it.
fn names_something(expression: &Expr) -> bool {
    match expression {
        Expr::Path(_) => true,
        Expr::Paren(inner) => names_something(&inner.expr),
        Expr::Group(inner) => names_something(&inner.expr),
        Expr::Binary(binary) => names_something(&binary.left) || names_something(&binary.right),
        Expr::Cast(_) | Expr::Call(_) | Expr::Field(_) | Expr::MethodCall(_) | Expr::Block(_) => true,
        _ => false,
    }
}

fn negative(word: &Ident) -> String {
    format!("`{word}` cannot be negative; 0 is the strictest")
}

/// The literal's value, which may be too large to be counted. A unit behind it, which the lexer takes for a suffix, is
/// refused: `2GiB` would else be 2.
pub(crate) fn whole(literal: &LitInt) -> syn::Result<Result<i64, ()>> {
    const TYPES: [&str; 13] =
        ["", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize"];
    if !TYPES.contains(&literal.suffix()) {
        let message = format!("`{literal}` is no number; a size with its unit is a text, as in `\"{literal}\"`");
        return Err(syn::Error::new_spanned(literal, message));
    }
    // What does not fit 128 bits is too large as well; every other literal that the lexer lets through is a number.
    let value: u128 = literal.base10_digits().parse().unwrap_or(u128::MAX);
    Ok(i64::try_from(value).map_err(|_| ()))
}

/// How many calls there are for each measured one.
pub(crate) enum Rate {
    Known(i64),
    /// Evaluated at each call.
    Expression(Expr),
}

impl Rate {
    /// Reads `= 100` or `= expression` behind the word.
    pub(crate) fn read(word: &Ident, input: ParseStream<'_>) -> syn::Result<Self> {
        equals(word, "a number, as in `sample = 100` for one call of a hundred", input)?;
        let wrong = |place: &dyn quote::ToTokens, message: &str| Err(syn::Error::new_spanned(place, message));
        match bare(input.parse()?) {
            Expr::Lit(ExprLit { lit: Lit::Int(literal), .. }) => match whole(&literal)? {
                Ok(0) => wrong(&literal, "`sample` must be at least 1"),
                Ok(number) => Ok(Self::Known(number)),
                Err(()) => wrong(&literal, "more than 2^63 - 1, the most that is counted"),
            },
            minus @ Expr::Unary(ExprUnary { op: UnOp::Neg(_), .. }) => wrong(&minus, "`sample` must be at least 1"),
            literal @ Expr::Lit(_) => wrong(&literal, "`sample` needs a number, as in `sample = 100`"),
            other => Ok(Self::Expression(other)),
        }
    }

    /// The rate as an expression of type `u64`, given the path of the runtime's private module.
    pub(crate) fn tokens(&self, private: &TokenStream) -> TokenStream {
        match self {
            Self::Known(number) => Literal::u64_suffixed(number.unsigned_abs()).to_token_stream(),
            Self::Expression(expression) => {
                let place = Span::mixed_site().located_at(expression.span());
                let private = at(private, place);
                quote_spanned!(place=> #private::rate(#expression))
            }
        }
    }
}
