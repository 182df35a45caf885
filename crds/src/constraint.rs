//! Constraints of grants: CEL rules over one call, bounded before they run because the interpreter has no cost limit.
//!
//! Operator and lint check the source when a grant is applied; the gateway runs what was checked. A rule that cannot be
//! evaluated does not hold.

use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{EntryExpr, Expr, LiteralValue};
use cel::{Context, Env, IdedExpr, Program, Value};
use jiff::Timestamp;
use serde_json::Value as Json;

/// Characters of a rule.
pub const MAX_SOURCE: usize = 1024;
/// Bytes of arguments that rules look at; a call with more does not pass.
pub const MAX_ARGUMENTS: usize = 64 * 1024;
/// How deep a rule may be nested.
const MAX_DEPTH: u16 = 32;

/// Bytes of stack for reading a rule.
const STACK: usize = 32 << 20;

/// What a rule knows.
const VARIABLES: [&str; 4] = ["args", "agent", "tool", "now"];

/// Functions and methods that a rule may use: none of them takes longer than its input is long.
const FUNCTIONS: [&str; 27] = [
    "bool",
    "bytes",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "int",
    "matches",
    "max",
    "min",
    "size",
    "startsWith",
    "string",
    "timestamp",
    "type",
    "uint",
];

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// A rule that was checked.
pub struct Constraint {
    program: Program,
}

/// The facts about a call that rules know, converted once for all rules.
pub struct Facts {
    args: Value,
    agent: Value,
    tool: Value,
    now: Value,
}

impl Constraint {
    /// Checks a rule. The error says what is wrong with it and what to write instead.
    pub fn parse(source: &str) -> Result<Self, String> {
        let length = source.chars().count();
        if length > MAX_SOURCE {
            return Err(format!(
                "the rule has {length} characters; write at most {MAX_SOURCE}"
            ));
        }
        // The parser recurses several frames for each level of a rule, more than the stack of a server's thread holds.
        let parse = || {
            let program =
                Program::compile(source).map_err(|errors| first_line(&errors.to_string()))?;
            check(program.expression(), 0)?;
            Ok(Self { program })
        };
        let unread = || "the rule cannot be read; write a simpler one".to_owned();
        std::thread::scope(|scope| {
            let parser = std::thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, parse)
                .map_err(|_| unread())?;
            parser.join().map_err(|_| unread())?
        })
    }

    /// Whether the rule holds. A rule that cannot be evaluated, or gives no boolean, does not.
    pub fn holds(&self, facts: &Facts) -> bool {
        let mut context = Context::with_env(ENV.clone());
        let Facts {
            args,
            agent,
            tool,
            now,
        } = facts;
        context.add_variable_from_value("args", args.clone());
        context.add_variable_from_value("agent", agent.clone());
        context.add_variable_from_value("tool", tool.clone());
        context.add_variable_from_value("now", now.clone());
        matches!(self.program.execute(&context), Ok(Value::Bool(true)))
    }
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Constraint")
    }
}

impl Facts {
    /// `args` is the call's arguments, an object; `agent` what [`Facts::new`]'s caller says of the agent. `None` when
    /// the arguments are longer than [`MAX_ARGUMENTS`] or are no JSON.
    pub fn new(args: &str, agent: &Json, tool: &str, now: Timestamp) -> Option<Self> {
        if args.len() > MAX_ARGUMENTS {
            return None;
        }
        let args: Json = serde_json::from_str(args).ok()?;
        let now = chrono(now)?;
        Some(Self {
            args: cel::to_value(args).ok()?,
            agent: cel::to_value(agent).ok()?,
            tool: tool.into(),
            now: Value::Timestamp(now.fixed_offset()),
        })
    }
}

fn chrono(now: Timestamp) -> Option<chrono::DateTime<chrono::Utc>> {
    chrono::DateTime::from_timestamp(
        now.as_second(),
        u32::try_from(now.subsec_nanosecond()).ok()?,
    )
}

/// What makes a rule unbounded or unknown, in words.
fn check(expression: &IdedExpr, depth: u16) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!(
            "the rule is nested more than {MAX_DEPTH} deep; split it into several"
        ));
    }
    let inner = |expression: &IdedExpr| check(expression, depth + 1);
    match &expression.expr {
        Expr::Comprehension(_) => Err(
            "comprehensions (all, exists, exists_one, filter, map) are not allowed in rules; test the fields by name"
                .to_owned(),
        ),
        Expr::Ident(name) => {
            if VARIABLES.contains(&name.as_str()) {
                Ok(())
            } else {
                Err(format!(
                    "{name} is not known to rules; they know {}",
                    VARIABLES.join(", ")
                ))
            }
        }
        Expr::Call(call) => {
            let name = call.func_name.as_str();
            if is_word(name) && !FUNCTIONS.contains(&name) {
                return Err(format!(
                    "the function {name} is not known to rules; they know {}",
                    FUNCTIONS.join(", ")
                ));
            }
            let is_literal = |argument: &IdedExpr| {
                matches!(&argument.expr, Expr::Literal(LiteralValue::String(_)))
            };
            if name == "matches" && !call.args.last().is_some_and(is_literal) {
                return Err(
                    "the pattern of matches must be written in the rule, as a string".to_owned()
                );
            }
            call.target.as_deref().map_or(Ok(()), inner)?;
            call.args.iter().try_for_each(inner)
        }
        Expr::List(list) => list.elements.iter().try_for_each(inner),
        Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => inner(&entry.key).and_then(|()| inner(&entry.value)),
            EntryExpr::StructField(field) => inner(&field.value),
        }),
        Expr::Select(select) => inner(&select.operand),
        Expr::Struct(of) => Err(format!("the type {} is not known to rules", of.type_name)),
        Expr::Literal(_) => Ok(()),
        Expr::Unspecified => Err("write a rule, such as args.amount <= 100".to_owned()),
    }
}

/// Operators have names such as `_+_` and `@in`; functions have words.
fn is_word(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
}

fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty());
    line.unwrap_or("the rule cannot be read").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(args: &str) -> Option<Facts> {
        let agent = json!({"id": "team.researcher", "name": "researcher", "namespace": "team", "labels": {"tier": "gold"}});
        let now = "2026-12-01T09:30:00Z".parse().unwrap();
        Facts::new(args, &agent, "agnt_queues_enqueue", now)
    }

    #[track_caller]
    fn check_rule(source: &str, args: &str, expected: bool) {
        let rule = Constraint::parse(source).unwrap_or_else(|why| panic!("{source}: {why}"));
        assert_eq!(
            rule.holds(&facts(args).unwrap()),
            expected,
            "{source} with {args}"
        );
    }

    #[test]
    fn a_rule_holds_or_does_not() {
        check_rule("args.amount <= 100", r#"{"amount": 100}"#, true);
        check_rule("args.amount <= 100", r#"{"amount": 101}"#, false);
        check_rule("args.amount <= 100.5", r#"{"amount": 100.5}"#, true);
        check_rule("args.queue in ['a', 'b']", r#"{"queue": "b"}"#, true);
        check_rule(
            "args.queue.startsWith('team-')",
            r#"{"queue": "team-x"}"#,
            true,
        );
        check_rule("args.queue.matches('^[a-z]+$')", r#"{"queue": "T"}"#, false);
        check_rule("!has(args.force) || !args.force", "{}", true);
        check_rule(
            "!has(args.force) || !args.force",
            r#"{"force": true}"#,
            false,
        );
        check_rule(
            "agent.labels.tier == 'gold' && tool.endsWith('enqueue')",
            "{}",
            true,
        );
        check_rule(
            "now.getHours() >= 9 && now < timestamp('2027-01-01T00:00:00Z')",
            "{}",
            true,
        );
        check_rule("size(args.items) < 3", r#"{"items": [1, 2]}"#, true);
    }

    #[test]
    fn a_rule_that_cannot_be_evaluated_does_not_hold() {
        check_rule("args.amount <= 100", "{}", false);
        check_rule("args.amount <= 100", r#"{"amount": "many"}"#, false);
        check_rule("args.amount", r#"{"amount": 1}"#, false);
        check_rule("1 / args.zero == 1", r#"{"zero": 0}"#, false);
        check_rule("args.n + 1 > 0", r#"{"n": 9223372036854775807}"#, false);
    }

    #[test]
    fn long_arguments_are_not_looked_at() {
        assert!(facts(&json!({"text": "x".repeat(MAX_ARGUMENTS)}).to_string()).is_none());
    }

    #[test]
    fn what_is_unbounded_or_unknown_is_refused_with_a_sentence() {
        for (source, words) in [
            ("args.items.all(x, x > 0)", "comprehensions"),
            ("[1, 2].exists(x, x in args.items)", "comprehensions"),
            ("args.items.map(x, x).size() > 0", "comprehensions"),
            (
                "ags.amount > 0",
                "ags is not known to rules; they know args",
            ),
            (
                "args.text.split(',') == []",
                "the function split is not known",
            ),
            ("args.text.matches(args.pattern)", "the pattern of matches"),
            ("args.amount >", "Syntax error"),
            ("", "Syntax error"),
        ] {
            let why = Constraint::parse(source).expect_err(source);
            assert!(why.contains(words), "{source}: {why}");
        }
        let long = format!("args.text == '{}'", "x".repeat(MAX_SOURCE));
        assert!(
            Constraint::parse(&long)
                .unwrap_err()
                .contains("at most 1024")
        );
        for deep in [
            format!("{}true{}", "!(".repeat(300), ")".repeat(300)),
            format!("{}true{}", "(".repeat(500), ")".repeat(500)),
            format!("1{} > 0", "+1".repeat(500)),
            format!("{}1{}", "[".repeat(500), "]".repeat(500)),
            "true ? ".repeat(140),
            format!("args{}", ".a".repeat(500)),
        ] {
            let why = Constraint::parse(&deep).expect_err(&deep);
            assert!(!why.is_empty());
        }
        // Long and flat is fine.
        let flat = ["args.a != 1"; 60].join(" && ");
        assert!(Constraint::parse(&flat).is_ok());
    }
}
