//! The options whose value is a text: a literal, or the path of a constant.

use crate::prologue::at;
use proc_macro2::{Ident, Spacing, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::parse::ParseStream;
use syn::spanned::Spanned as _;
use syn::{Expr, ExprLit, GenericParam, Generics, Lit, LitStr};

/// The macros that give a literal without running anything.
const LITERAL_MACROS: [&str; 3] = ["concat", "env", "stringify"];

/// A text known when the program is compiled.
pub(crate) enum Text {
    Literal(LitStr),
    /// The path of a constant, or a macro that gives a literal.
    Constant(Expr),
}

impl Text {
    /// Reads the value of the option `word`.
    ///
    /// The whole expression is read, so that one of another kind is refused as a whole and not where it goes on after
    /// its first token.
    pub(crate) fn read(word: &Ident, input: ParseStream<'_>) -> syn::Result<Self> {
        let needs = format!("`{word}` needs a string literal or the path of a constant");
        let expression = input.parse().map_err(|error: syn::Error| syn::Error::new(error.span(), &needs))?;
        match bare(expression) {
            Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) => Self::literal(word, literal),
            constant @ Expr::Path(_) => Ok(Self::Constant(constant)),
            Expr::Macro(call) if LITERAL_MACROS.iter().any(|name| call.mac.path.is_ident(name)) => {
                Ok(Self::Constant(Expr::Macro(call)))
            }
            other => Err(syn::Error::new_spanned(other, needs)),
        }
    }

    /// A literal given for the option `word`, which may not be empty.
    pub(crate) fn literal(word: impl std::fmt::Display, literal: LitStr) -> syn::Result<Self> {
        if literal.value().is_empty() {
            return Err(syn::Error::new_spanned(&literal, format!("`{word}` cannot be empty")));
        }
        Ok(Self::Literal(literal))
    }

    /// The text as a constant expression that does not compile if the text is empty, given the path of the runtime's
    /// private module. What rustc has to say about it is said at the user's tokens.
    pub(crate) fn checked(&self, private: &TokenStream) -> TokenStream {
        match self {
            Self::Literal(literal) => literal.to_token_stream(),
            Self::Constant(constant) => {
                let place = Span::mixed_site().located_at(constant.span());
                let private = at(private, place);
                quote_spanned!(place=> #private::not_empty(#constant))
            }
        }
    }

    /// As [`Text::checked`] for use in the function itself: it can name `Self` and type parameters, but no variables.
    pub(crate) fn in_const(&self, private: &TokenStream) -> TokenStream {
        let text = self.checked(private);
        match self {
            Self::Literal(_) => text,
            Self::Constant(constant) => {
                let place = Span::mixed_site().located_at(constant.span());
                quote_spanned!(place=> const { #text })
            }
        }
    }
}

impl ToTokens for Text {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Self::Literal(literal) => literal.to_tokens(tokens),
            Self::Constant(constant) => constant.to_tokens(tokens),
        }
    }
}

/// An expression without the invisible group around what a macro took for an `$e:expr`.
pub(crate) fn bare(expression: Expr) -> Expr {
    match expression {
        Expr::Group(group) if group.attrs.is_empty() => bare(*group.expr),
        other => other,
    }
}

/// The first `Self` or type parameter among the tokens.
pub(crate) fn depends_on_types(tokens: TokenStream, generics: &Generics) -> Option<Ident> {
    // After `::` a parameter's name is another thing's.
    let mut after_colons = false;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                let parameter = generics.params.iter().any(|parameter| match parameter {
                    GenericParam::Type(parameter) => parameter.ident == ident,
                    GenericParam::Const(parameter) => parameter.ident == ident,
                    GenericParam::Lifetime(_) => false,
                });
                if ident == "Self" || (parameter && !after_colons) {
                    return Some(ident);
                }
                after_colons = false;
            }
            TokenTree::Punct(punct) => after_colons = punct.as_char() == ':' && punct.spacing() == Spacing::Alone,
            TokenTree::Group(group) => {
                if let Some(found) = depends_on_types(group.stream(), generics) {
                    return Some(found);
                }
            }
            TokenTree::Literal(_) => {}
        }
    }
    None
}
