//! Parses the values that a user entered in a form, and renders inputs that show invalid values again.

use crate::approvals::operations::Note;
use crate::sessions::session::VerifiedForm;
use crate::ui::money::is_no_limit;
use maud::{Markup, html};
use purser_api::Precondition;
use purser_domain::{
    Address, Agent, AgentName, Amount, ApprovalId, Duration, EditReason, Error, ErrorKind, KeyId, LabelFilter,
    LabelKey, LabelValue, Labels, RuleId, RuleKindName, ServiceId, StartingLimits, ValidationError, WithdrawalAmount,
    parse_address,
};
use serde_json::Value;
use std::fmt;
use url::form_urlencoded;

/// The name of a form, which is also a prefix of the inputs' ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormName {
    NewAgent,
    Rename,
    Labels,
    RaiseFactor,
    /// The form that adds a label to several agents, or removes a label from several agents.
    BulkLabel,
    Enable,
    /// The form that sets the same limits for each of the agent's services that has no limits yet.
    Unlimited,
    Policy(ServiceId),
    NewRule(RuleKindName),
    Rule(RuleId),
    /// The form that creates an agent key with a limited scope.
    LimitedKey,
    Rotate(KeyId),
    /// The form in which a user allows an OAuth client to act for an agent.
    Consent,
    PayoutAddress,
    PayOut,
    Notices,
    NewWebhook,
    Webhook,
    Template,
    /// Any form that has only buttons, or only buttons and a note.
    Plain,
    ApprovalDecision(ApprovalId),
    /// The form that decides several selected approvals.
    ApprovalSelection,
    /// The form of an operator act, by the act's name. The number distinguishes several forms of the act on a page.
    Operator(&'static str, u128),
}

impl fmt::Display for FormName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewAgent => f.write_str("new-agent"),
            Self::Rename => f.write_str("rename"),
            Self::Labels => f.write_str("labels"),
            Self::RaiseFactor => f.write_str("raise-factor"),
            Self::BulkLabel => f.write_str("bulk-label"),
            Self::Enable => f.write_str("enable"),
            Self::Unlimited => f.write_str("unlimited"),
            Self::Policy(service) => write!(f, "policy-{service}"),
            Self::NewRule(kind) => write!(f, "new-{}", kind.name()),
            Self::Rule(rule) => write!(f, "rule-{rule}"),
            Self::LimitedKey => f.write_str("limited-key"),
            Self::Rotate(key) => write!(f, "rotate-{key}"),
            Self::Consent => f.write_str("consent"),
            Self::PayoutAddress => f.write_str("payout-address"),
            Self::PayOut => f.write_str("pay-out"),
            Self::Notices => f.write_str("notices"),
            Self::NewWebhook => f.write_str("new-webhook"),
            Self::Webhook => f.write_str("webhook"),
            Self::Template => f.write_str("template"),
            Self::Plain => f.write_str("plain"),
            Self::ApprovalDecision(approval) => write!(f, "verdict-{approval}"),
            Self::ApprovalSelection => f.write_str("selection"),
            Self::Operator(act, key) => write!(f, "{act}-{key}"),
        }
    }
}

/// A submitted form. Methods that parse an invalid value record a validation error and return `None`.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) name: FormName,
    fields: Vec<(String, String)>,
    problems: Vec<FieldProblem>,
}

/// A JSON field, the form field for its value, and the form field's label.
pub(crate) type FieldOf = (&'static str, &'static str, &'static str);

pub(crate) fn set_field(body: &mut Value, field: &str, value: impl Into<Value>) {
    if let Value::Object(fields) = body {
        fields.insert(field.to_owned(), value.into());
    }
}

/// An optional value is invalid. The form has already recorded a validation error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InvalidField;

/// A field's validation error as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldProblem {
    /// Empty if the error does not belong to a visible field.
    pub(crate) field: String,
    pub(crate) message: String,
}

impl VerifiedForm {
    pub(crate) fn parse_posted_form(&self, name: FormName) -> Form {
        Form::parse(name, self.body())
    }
}

impl Form {
    pub(crate) fn parse(name: FormName, body: &[u8]) -> Self {
        let fields = form_urlencoded::parse(body).into_owned().collect();
        Self {
            name,
            fields,
            problems: Vec::new(),
        }
    }

    /// Returns the trimmed value; empty if the field is absent.
    pub(crate) fn field_text(&self, field: &str) -> &str {
        self.field_values(field).next().unwrap_or_default()
    }

    /// Returns the values of all inputs with the name `field`, without surrounding spaces. Empty values are omitted.
    pub(crate) fn field_values<'a>(&'a self, field: &str) -> impl Iterator<Item = &'a str> {
        let values = self.fields.iter().filter(move |(name, _)| name == field);
        values.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// Splits a field's values at white space and commas.
    pub(crate) fn field_words<'a>(&'a self, field: &str) -> impl Iterator<Item = &'a str> {
        let separator = |symbol: char| symbol.is_whitespace() || symbol == ',';
        self.field_values(field)
            .flat_map(move |text| text.split(separator))
            .filter(|word| !word.is_empty())
    }

    /// Splits a field's values like [`Form::field_words`], without duplicates.
    pub(crate) fn distinct_field_words<'a>(&'a self, field: &str) -> Vec<&'a str> {
        let mut words = Vec::new();
        for word in self.field_words(field) {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        words
    }

    pub(crate) fn add_error(&mut self, field: &str, message: impl Into<String>) {
        let error = FieldProblem {
            field: field.to_owned(),
            message: message.into(),
        };
        if !self.problems.contains(&error) {
            self.problems.push(error);
        }
    }

    /// Returns the value, or `None` if the form has validation errors, including the errors in `result`.
    pub(crate) fn take_value_or_add_errors<T>(&mut self, result: Result<T, Error>, fields: &[FieldOf]) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value).filter(|_| !self.has_errors()),
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::InvalidRequest(errors) => self.add_body_errors(errors, fields),
            // The form already shows the error of the invalid field.
            _ if self.has_errors() => {}
            _ => self.add_error("", "The form can’t be read. Reload the page."),
        }
        None
    }

    /// A message names a list item by number instead of by value, because a user may have pasted a secret key.
    pub(crate) fn add_body_errors(&mut self, errors: &[ValidationError], fields: &[FieldOf]) {
        let wrong: Vec<String> = self.problems.iter().map(|error| error.field.clone()).collect();
        for error in errors {
            let mut steps = error.path.split('/').skip(1);
            let step = steps.next().unwrap_or_default();
            let entry = steps.next().and_then(|index| index.parse::<u32>().ok());
            let entry = entry.map_or_else(String::new, |index| format!("entry {} ", index.saturating_add(1)));
            let message = error.message.replace('`', "");
            match fields.iter().find(|(name, ..)| *name == step) {
                Some((_, field, _)) if wrong.iter().any(|wrong| wrong == field) => {}
                Some((_, field, label)) => self.add_error(field, format!("{label}: {entry}{message}.")),
                None => self.add_error("", format!("{entry}{message}.")),
            }
        }
    }

    pub(crate) fn has_errors(&self) -> bool {
        !self.problems.is_empty()
    }

    pub(crate) fn errors(&self) -> &[FieldProblem] {
        &self.problems
    }

    pub(crate) fn parse_agent_name(&mut self) -> Option<AgentName> {
        let name = AgentName::parse(self.field_text("name"));
        if name.is_none() {
            self.add_error("name", format!("Name: {}.", AgentName::FORM));
        }
        name
    }

    pub(crate) fn parse_starting_limits(&mut self) -> Option<StartingLimits> {
        let limits = StartingLimits::from_name(self.field_text("limits"));
        if limits.is_none() {
            self.add_error("limits", "Limits: choose safe limits, or none.");
        }
        limits
    }

    /// Parses an agent's labels, one `key=value` per line.
    pub(crate) fn parse_labels(&mut self) -> Option<Labels> {
        let lines: Vec<String> = self
            .field_text("labels")
            .lines()
            .map(|line| line.trim().to_owned())
            .collect();
        let mut pairs: Vec<(LabelKey, LabelValue)> = Vec::new();
        for line in lines.iter().filter(|line| !line.is_empty()) {
            match LabelFilter::parse(line).filter(LabelFilter::is_displayable) {
                Some(LabelFilter {
                    key,
                    value: Some(value),
                }) if pairs.iter().all(|(known, _)| *known != key) => {
                    pairs.push((key, value));
                }
                Some(LabelFilter { value: Some(_), .. }) => {
                    self.add_error("labels", format!("Labels: “{line}” repeats a key."));
                }
                Some(LabelFilter { value: None, .. }) | None => {
                    self.add_error(
                        "labels",
                        format!("Labels: “{line}” is no label; write it like team=search."),
                    );
                }
            }
        }
        let labels = Labels::from_pairs(pairs);
        if labels.is_none() {
            self.add_error("labels", format!("Labels: {}.", Labels::FORM));
        }
        labels.filter(|_| !self.has_errors())
    }

    pub(crate) fn parse_note(&mut self) -> Result<Option<Note>, InvalidField> {
        Note::parse(self.field_text("note")).map_err(|error| {
            self.add_error("", format!("Note: {error}."));
            InvalidField
        })
    }

    pub(crate) fn parse_update_reason(&mut self) -> Result<Option<EditReason>, InvalidField> {
        EditReason::parse_unless_blank(self.field_text("edit_reason")).map_err(|error| {
            self.add_error("edit_reason", format!("Why: {error}."));
            InvalidField
        })
    }

    pub(crate) fn parse_dollars(&mut self, field: &str, label: &str) -> Option<Amount> {
        let text = self.field_text(field);
        let amount = Amount::from_usdc(text.strip_prefix('$').unwrap_or(text).trim_start());
        if amount.is_none() {
            let message = if text.is_empty() {
                format!("{label}: enter an amount in dollars, such as 5 or 0.25.")
            } else {
                format!(
                    "{label}: “{text}” is not an amount in dollars; write it like 5 or 0.25, with at most six decimals."
                )
            };
            self.add_error(field, message);
        }
        amount
    }

    /// Parses an amount in dollars. Returns `unlimited_amount` if the checkbox for no limit is checked.
    pub(crate) fn parse_cap(&mut self, field: &str, label: &str, unlimited_amount: Amount) -> Option<Amount> {
        if self.field_text(&format!("{field}_no_limit")).is_empty() {
            return self.parse_dollars(field, label);
        }
        // An amount together with a checked box is an error, because "no limit" would be the worse mistake.
        if !self.field_text(field).is_empty() {
            self.add_error(field, format!("{label}: enter an amount or check its box, not both."));
            return None;
        }
        Some(unlimited_amount)
    }

    pub(crate) fn parse_number(&mut self, field: &str, label: &str, min: u32, max: u32) -> Option<u32> {
        let text = self.field_text(field);
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text
            .parse()
            .ok()
            .filter(|number| digits && (min..=max).contains(number));
        if number.is_none() {
            self.add_error(field, format!("{label}: enter a whole number from {min} to {max}."));
        }
        number
    }

    /// Parses the number of seconds for which a rotated key keeps working.
    pub(crate) fn parse_key_overlap(&mut self) -> Option<Duration> {
        let longest = u32::try_from(Agent::MAX_KEY_OVERLAP.secs()).unwrap_or(u32::MAX);
        self.parse_number("overlap_seconds", "Overlap in seconds", 0, longest)
            .map(Duration::from_secs_u32)
    }

    /// Parses the version of the record that the form was rendered from.
    pub(crate) fn parse_version(&mut self) -> Option<Precondition> {
        // The form that enables a service has no version. Version zero means that no record exists, so the form never
        // overwrites existing limits.
        let is_first = self.name == FormName::Enable;
        let text = if is_first { "0" } else { self.field_text("version") };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let version = text.parse().ok().filter(|_| digits);
        if version.is_none() {
            self.add_error(
                "",
                "The form does not name the version that it changes. Reload the page.",
            );
        }
        version.map(Precondition::Version)
    }

    pub(crate) fn parse_address(&mut self) -> Option<Address> {
        let address = parse_address(self.field_text("address"));
        address
            .map_err(|error| self.add_error("address", format!("Address: {error}.")))
            .ok()
    }

    /// Parses an amount in dollars, or the whole balance if the checkbox is checked.
    pub(crate) fn parse_withdrawal_amount(&mut self) -> Option<WithdrawalAmount> {
        let is_all = !self.field_text("amount_no_limit").is_empty();
        let amount = self.parse_cap("amount", "Amount", Amount::MAX)?;
        let amount = if is_all {
            Some(WithdrawalAmount::Balance)
        } else {
            WithdrawalAmount::from_amount(amount)
        };
        if amount.is_none() {
            self.add_error("amount", "Amount: enter more than zero.");
        }
        amount
    }

    /// Records a validation error if the checkbox is not checked.
    pub(crate) fn require_checked(&mut self, field: &str, message: &str) -> bool {
        let is_checked = !self.field_text(field).is_empty();
        if !is_checked {
            self.add_error(field, message);
        }
        is_checked
    }

    pub(crate) fn parse_service_id(&mut self) -> Option<ServiceId> {
        let service = ServiceId::parse(self.field_text("service_id"));
        if service.is_none() {
            self.add_error("service_id", "Service: choose one.");
        }
        service
    }
}

/// The inputs of a form. A form that is shown again has the submitted values.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    name: FormName,
    typed: Option<&'a Form>,
}

impl<'a> Inputs<'a> {
    /// `submitted` is the submitted form, if the page shows a form again.
    pub(crate) fn new(name: FormName, submitted: Option<&'a Form>) -> Self {
        Self {
            name,
            typed: submitted.filter(|form| form.name == name),
        }
    }

    pub(crate) const fn has_posted_form(&self) -> bool {
        self.typed.is_some()
    }

    pub(crate) fn input_id(&self, field: &str) -> String {
        format!("{}-{field}", self.name)
    }

    fn shown_value(&self, field: &str, current: &str) -> String {
        self.typed.map_or(current, |form| form.field_text(field)).to_owned()
    }

    /// Returns the posted value; empty unless the form is shown again.
    pub(crate) fn posted_value(&self, field: &str) -> &'a str {
        self.typed.map_or("", |form| form.field_text(field))
    }

    fn is_option_selected(&self, field: &str, value: &str, current: bool) -> bool {
        self.typed
            .map_or(current, |form| form.field_values(field).any(|typed| typed == value))
    }

    fn has_field_error(&self, field: &str) -> bool {
        self.typed
            .is_some_and(|form| form.problems.iter().any(|error| error.field == field))
    }

    /// Renders a required input for one line of text of at most `max` characters.
    pub(crate) fn required_text_input(&self, field: &str, label: &str, current: &str, max: usize) -> Markup {
        self.text_input(field, label, current, max, true)
    }

    /// Renders an optional input for one line of text of at most `max` characters.
    pub(crate) fn optional_text_input(&self, field: &str, label: &str, current: &str, max: usize) -> Markup {
        self.text_input(field, label, current, max, false)
    }

    /// Renders an optional input for the user's reason for a change of limits.
    pub(crate) fn update_reason_input(&self) -> Markup {
        self.optional_text_input("edit_reason", "Why", "", EditReason::MAX)
    }

    fn text_input(&self, field: &str, label: &str, current: &str, max: usize, is_required: bool) -> Markup {
        let id = self.input_id(field);
        html! {
            div.field {
                label for=(id) { (label) @if !is_required { " " span.muted { "(optional)" } } }
                input type="text" id=(id) name=(field) value=(self.shown_value(field, current)) maxlength=(max)
                    required[is_required] autocomplete="off" aria-invalid[self.has_field_error(field)];
            }
        }
    }

    pub(crate) fn optional_checkbox(&self, field: &str, label: &str, current: bool) -> Markup {
        let id = self.input_id(field);
        html! {
            div.field {
                label.check for=(id) {
                    input type="checkbox" id=(id) name=(field) value="yes" checked[self.is_option_selected(field, "yes", current)];
                    (label)
                }
            }
        }
    }

    /// Each element of `current` is one line of the initial text.
    pub(crate) fn text_area(&self, field: &str, label: &str, hint: &str, current: &[String], rows: u32) -> Markup {
        let (id, text) = (self.input_id(field), self.shown_value(field, &current.join("\n")));
        html! {
            div.field {
                label for=(id) { (label) }
                textarea id=(id) name=(field) rows=(rows) spellcheck="false" autocomplete="off"
                    aria-describedby=(format!("{id}-hint")) aria-invalid[self.has_field_error(field)] { (text) }
                p.hint id=(format!("{id}-hint")) { (hint) }
            }
        }
    }

    /// The input is empty if `current` is `None`.
    pub(crate) fn dollars_input(&self, field: &str, label: &str, hint: &str, current: Option<Amount>) -> Markup {
        let id = self.input_id(field);
        html! {
            div.field {
                label for=(id) { (label) }
                (self.amount_input(field, current))
                p.hint id=(format!("{id}-hint")) { (hint) }
            }
        }
    }

    /// Renders an input for a cap in dollars, with a checkbox for no limit.
    pub(crate) fn cap_input(
        &self,
        field: &str,
        label: &str,
        no_cap_label: &str,
        hint: &str,
        current: Amount,
    ) -> Markup {
        let (id, box_field) = (self.input_id(field), format!("{field}_no_limit"));
        let box_id = self.input_id(&box_field);
        let checked = self.is_option_selected(&box_field, "yes", is_no_limit(current));
        html! {
            div.field.cap {
                label for=(id) { (label) }
                (self.amount_input(field, (!is_no_limit(current)).then_some(current)))
                label.check for=(box_id) {
                    input type="checkbox" id=(box_id) name=(box_field) value="yes" checked[checked];
                    (no_cap_label)
                }
                p.hint id=(format!("{id}-hint")) { (hint) }
            }
        }
    }

    fn amount_input(&self, field: &str, current: Option<Amount>) -> Markup {
        let id = self.input_id(field);
        let value = self.shown_value(field, &current.map(Amount::to_usdc).unwrap_or_default());
        html! {
            span.dollars {
                span aria-hidden="true" { "$" }
                input type="text" inputmode="decimal" id=(id) name=(field) value=(value) maxlength="24" size="12"
                    autocomplete="off" aria-describedby=(format!("{id}-hint")) aria-invalid[self.has_field_error(field)];
            }
        }
    }

    pub(crate) fn required_checkbox(&self, field: &str, label: &str) -> Markup {
        let id = self.input_id(field);
        html! {
            div.field {
                label.check for=(id) {
                    input type="checkbox" id=(id) name=(field) value="yes" required checked[self.is_option_selected(field, "yes", false)];
                    (label)
                }
            }
        }
    }

    /// Renders an input for a whole number of at most six digits.
    pub(crate) fn number_input(&self, field: &str, label: &str, current: u64) -> Markup {
        let id = self.input_id(field);
        html! {
            div.field {
                label for=(id) { (label) }
                input.short type="text" inputmode="numeric" id=(id) name=(field) maxlength="6" size="6"
                    value=(self.shown_value(field, &current.to_string())) autocomplete="off" aria-invalid[self.has_field_error(field)];
            }
        }
    }

    pub(crate) fn drop_down(&self, field: &str, label: &str, options: &[(String, String)], current: &str) -> Markup {
        let (id, chosen) = (self.input_id(field), self.shown_value(field, current));
        html! {
            div.field {
                label for=(id) { (label) }
                select id=(id) name=(field) aria-invalid[self.has_field_error(field)] {
                    @for (value, text) in options { option value=(value) selected[*value == chosen] { (text) } }
                }
            }
        }
    }

    pub(crate) fn radio_buttons(&self, field: &str, legend: &str, options: &[(&str, &str)], current: &str) -> Markup {
        html! {
            fieldset.options id=(self.input_id(field)) tabindex="-1" {
                legend { (legend) }
                @for (value, text) in options {
                    label.check {
                        input type="radio" name=(field) value=(value) checked[self.is_option_selected(field, value, *value == current)];
                        (text)
                    }
                }
            }
        }
    }

    /// Renders checkboxes, of which any number can be checked.
    pub(crate) fn checkboxes(&self, field: &str, legend: &str, hint: &str, options: &[BoxOption]) -> Markup {
        let id = self.input_id(field);
        html! {
            fieldset.options id=(id) aria-describedby=(format!("{id}-hint")) tabindex="-1" {
                legend { (legend) }
                @for option in options {
                    label.check {
                        input type="checkbox" name=(field) value=(option.value)
                            checked[self.is_option_selected(field, &option.value, option.present)];
                        (option.label)
                    }
                }
                p.hint id=(format!("{id}-hint")) { (hint) }
            }
        }
    }
}

pub(crate) struct BoxOption {
    pub(crate) value: String,
    pub(crate) label: String,
    pub(crate) present: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(body: &str) -> Form {
        Form::parse(FormName::Enable, body.as_bytes())
    }

    #[test]
    fn invalid_dollar_amounts_are_reported_with_their_label() {
        let rows = [
            ("a=0.25", Some(250_000)),
            ("a=+%2412.5+", Some(12_500_000)),
            ("a=1,50", None),
            ("a=1e3", None),
            ("a=-1", None),
            ("a=", None),
            ("", None),
            ("a=0.0000001", None),
        ];
        for (body, units) in rows {
            let mut form = form(body);
            assert_eq!(form.parse_dollars("a", "Cap").map(Amount::units), units, "{body}");
            assert_eq!(form.has_errors(), units.is_none(), "{body}");
            assert!(form.errors().iter().all(|problem| problem.message.starts_with("Cap: ")));
        }
    }

    #[test]
    fn only_the_checkbox_removes_a_cap() {
        let no_limit = Amount::from_units(10_000_000_000_000).unwrap();
        assert_eq!(
            form("a=&a_no_limit=yes").parse_cap("a", "Cap", no_limit),
            Some(no_limit)
        );
        for body in ["a=", "", "a=1&a_no_limit=yes"] {
            let mut form = form(body);
            assert_eq!(form.parse_cap("a", "Cap", no_limit), None, "{body}");
            assert!(form.has_errors());
        }
    }

    #[test]
    fn rejected_input_is_shown_only_in_its_form() {
        let mut typed = form("name=%22%3E%3Cscript%3E");
        typed.add_error("name", "no");
        let again = Inputs::new(FormName::Enable, Some(&typed))
            .required_text_input("name", "Name", "now", 100)
            .into_string();
        assert!(again.contains("value=\"&quot;&gt;&lt;script&gt;\""), "{again}");
        assert!(again.contains("aria-invalid"));
        let other = Inputs::new(FormName::NewAgent, Some(&typed))
            .required_text_input("name", "Name", "now", 100)
            .into_string();
        assert!(other.contains("value=\"now\"") && !other.contains("aria-invalid"));
    }

    #[test]
    fn a_form_version_is_a_plain_number() {
        for (body, version) in [
            ("version=7", Some(7)),
            ("version=%2B7", None),
            ("version=", None),
            ("", None),
        ] {
            let mut form = Form::parse(FormName::Plain, body.as_bytes());
            assert_eq!(form.parse_version(), version.map(Precondition::Version), "{body}");
        }
    }
}
