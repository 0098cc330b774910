//! Renders the form of each operator act.

use crate::operators::acts::OperatorAct;
use crate::ui::form::FormName;
use crate::ui::layout::Layout;
use maud::{Markup, html};

/// The form of an act on a page, behind a button.
pub(crate) struct ActForm<'a> {
    pub(crate) act: &'a OperatorAct,
    /// Distinguishes the forms of the act on the page.
    pub(crate) key: u128,
    pub(crate) action: String,
    /// The payee that the operator confirms.
    pub(crate) payee: Option<&'a str>,
    /// The initial values of the act's inputs, and the values of hidden inputs.
    pub(crate) values: &'a [(&'a str, &'a str)],
    pub(crate) content: Markup,
}

impl<'a> ActForm<'a> {
    pub(crate) fn new(act: &'a OperatorAct, action: String) -> Self {
        Self {
            act,
            key: 0,
            action,
            payee: None,
            values: &[],
            content: html! {},
        }
    }

    pub(crate) fn render(&self, layout: &Layout) -> Markup {
        let inputs = layout.form_inputs(FormName::Operator(self.act.name, self.key));
        let (confirms, _) = self.act.confirmation;
        let confirms = self
            .payee
            .map_or_else(|| confirms.to_owned(), |payee| format!("{confirms}: {payee}"));
        let is_hidden = |name: &str| self.act.fields.iter().all(|field| field.name != name);
        let value = |name: &str| {
            self.values
                .iter()
                .find(|(known, _)| *known == name)
                .map_or("", |(_, value)| value)
        };
        html! {
            details.pop open[inputs.has_posted_form()] {
                summary.button { (self.act.label) }
                div.pop-body {
                    (layout.post_form(&self.action, &html! {
                        @for (name, value) in self.values.iter().filter(|(name, _)| is_hidden(name)) {
                            input type="hidden" name=(name) value=(value);
                        }
                        (self.content)
                        @for field in self.act.fields {
                            (inputs.required_text_input(field.name, field.label, value(field.name), field.max_chars))
                        }
                        @if !confirms.is_empty() { (inputs.required_checkbox("confirmed", &confirms)) }
                        button.primary type="submit" { (self.act.label) }
                    }))
                }
            }
        }
    }
}
