//! Blocks that visibly never reach their end, by the syntax alone: so nothing comes of them that could be looked at, and
//! rustc would report whatever does as unreachable.

use proc_macro2::{Group, TokenStream, TokenTree};
use syn::parse::Parser as _;
use syn::visit_mut::{self, VisitMut};
use syn::{Block, Expr, ExprAsync, ExprBreak, ExprClosure, ExprForLoop, ExprLoop, ExprWhile, Item, Label, Macro, Stmt};

/// Macros that do not return.
const DIVERGING: [&str; 4] = ["panic", "todo", "unimplemented", "unreachable"];

/// Whether the block's end is never reached. Not known of a block that does not parse.
pub(crate) fn never_ends(block: &Group) -> bool {
    Block::parse_within.parse2(block.stream()).is_ok_and(|statements| any_diverges(&statements))
}

fn any_diverges(statements: &[Stmt]) -> bool {
    statements.iter().any(|statement| match statement {
        Stmt::Expr(expression, _) => diverges(expression),
        Stmt::Macro(statement) => is_diverging(&statement.mac),
        Stmt::Local(local) => local.init.as_ref().is_some_and(|init| diverges(&init.expr)),
        Stmt::Item(_) => false,
    })
}

fn is_diverging(call: &Macro) -> bool {
    call.path.segments.last().is_some_and(|segment| DIVERGING.iter().any(|name| segment.ident == name))
}

fn diverges(expression: &Expr) -> bool {
    match expression {
        Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => true,
        Expr::Macro(expression) => is_diverging(&expression.mac),
        Expr::Block(inner) => inner.label.is_none() && any_diverges(&inner.block.stmts),
        Expr::Unsafe(inner) => any_diverges(&inner.block.stmts),
        Expr::Paren(inner) => diverges(&inner.expr),
        Expr::Group(inner) => diverges(&inner.expr),
        Expr::Loop(inner) => !is_left(inner),
        Expr::If(branches) => {
            let otherwise = branches.else_branch.as_ref().is_some_and(|(_, otherwise)| diverges(otherwise));
            otherwise && any_diverges(&branches.then_branch.stmts)
        }
        Expr::Match(branches) => {
            let mut bodies = branches.arms.iter().map(|arm| &arm.body);
            !branches.arms.is_empty() && bodies.all(|body| diverges(body))
        }
        _ => false,
    }
}

/// Whether a `break` leaves the loop.
fn is_left(inner: &ExprLoop) -> bool {
    let mut finder = Breaks { label: inner.label.clone(), inside: 0, found: false };
    finder.visit_block_mut(&mut inner.body.clone());
    finder.found
}

struct Breaks {
    label: Option<Label>,
    /// How many loops are around, below the one that is looked at.
    inside: usize,
    found: bool,
}

impl Breaks {
    fn in_loop(&mut self, visit: impl FnOnce(&mut Self)) {
        self.inside += 1;
        visit(self);
        self.inside -= 1;
    }
}

impl VisitMut for Breaks {
    fn visit_expr_break_mut(&mut self, node: &mut ExprBreak) {
        visit_mut::visit_expr_break_mut(self, node);
        self.found |= match (&node.label, &self.label) {
            (None, _) => self.inside == 0,
            (Some(label), Some(own)) => *label == own.name,
            (Some(_), None) => false,
        };
    }

    fn visit_expr_loop_mut(&mut self, node: &mut ExprLoop) {
        self.in_loop(|this| visit_mut::visit_expr_loop_mut(this, node));
    }

    fn visit_expr_while_mut(&mut self, node: &mut ExprWhile) {
        self.in_loop(|this| visit_mut::visit_expr_while_mut(this, node));
    }

    fn visit_expr_for_loop_mut(&mut self, node: &mut ExprForLoop) {
        self.in_loop(|this| visit_mut::visit_expr_for_loop_mut(this, node));
    }

    // Whether it leaves this loop or another cannot be seen.
    fn visit_macro_mut(&mut self, node: &mut Macro) {
        self.found |= names_break(node.tokens.clone());
    }

    // A `break` in these leaves something else.
    fn visit_expr_async_mut(&mut self, _: &mut ExprAsync) {}
    fn visit_expr_closure_mut(&mut self, _: &mut ExprClosure) {}
    fn visit_item_mut(&mut self, _: &mut Item) {}
}

fn names_break(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "break",
        TokenTree::Group(group) => names_break(group.stream()),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proc_macro2::Delimiter;

    fn ends_never(block: &str) -> bool {
        never_ends(&Group::new(Delimiter::Brace, block.parse().unwrap()))
    }

    #[test]
    fn what_visibly_leaves() {
        for block in [
            "return 1",
            "f(); return; g()",
            "break 'a 5",
            "if a { continue } else if b { panic!() } else { { return } }",
            "match a { 1 => return, _ => { std::todo!(\"x\") } }",
            "loop { f(); }",
            "'a: loop { loop { break; } while b { break } for c in d { break; } }",
            "loop { let f = || { loop { break } }; }",
            "let x = loop { if a { return; } };",
            "unsafe { (return) }",
        ] {
            assert!(ends_never(block), "{block}");
        }
    }

    #[test]
    fn what_may_reach_its_end() {
        for block in [
            "",
            "1",
            "if a { return }",
            "if a { return } else { 1 }",
            "match a { 1 => return, _ => 2 }",
            "match a {}",
            "loop { break }",
            "'a: loop { loop { break 'a; } }",
            "loop { leave!(break) }",
            "'a: { break 'a 1 }",
            "|| return",
            "async { return }",
            "while a { return }",
            "let x: = return",
        ] {
            assert!(!ends_never(block), "{block}");
        }
    }
}
