//! Proposals of programs. A module is compiled before it is logged, on a thread that may block. Few
//! modules are compiled at a time.

use std::sync::Arc;

use weir_core::{CodeHash, Expect, Intention, Operation, TopicOptions};

use super::problems;
use super::propose;
use super::session::Session;
use crate::http::exchange::busy;
use crate::http::offload;
use crate::http::problem::Problem;
use crate::limits::admission::COMPILES_MAX;
use crate::limits::budget::BudgetExhausted;
use crate::queued_write::QueuedWrite;
use crate::resources::context::{Call, Edge};

/// An operation with a program, with owned bytes.
enum ProgramOperation {
    Create(Box<TopicOptions>),
    Replace(Option<CodeHash>),
}

/// Proposes an intention. If it contains a program, first compiles the module on a thread that may
/// block. Keeps the key and the session in use until the verdict, also during the compilation.
pub(crate) async fn propose(
    edge: &Arc<Edge>,
    call: &Call,
    session: &Session,
    intention: &Intention<'_>,
    expect: Vec<Expect<'static>>,
) -> Result<QueuedWrite, Problem> {
    let (program, code, args) = match intention.operation {
        Operation::CreateProgram {
            options,
            code,
            args,
        } => (
            ProgramOperation::Create(Box::new(options.clone())),
            code,
            args,
        ),
        Operation::Replace {
            expected,
            code,
            args,
        } => (ProgramOperation::Replace(expected), code, args),
        _ => {
            let mut queued = propose::propose(edge, call, std::slice::from_ref(intention))?;
            session.hold_in(&mut queued);
            return Ok(queued);
        }
    };
    edge.allow(call, std::slice::from_ref(intention))
        .map_err(|(_, problem)| problem)?;
    let compile_permit = edge.shared.admission.wait_to_compile().await;
    let compile_permit = compile_permit.ok_or_else(compiles_others)?;
    let (code, args) = (code.to_vec(), args.to_vec());
    let (topic, principal) = (intention.topic.to_owned(), intention.principal.to_vec());
    let shared = Arc::clone(&edge.shared);
    let caller = Arc::clone(&call.principal);
    let session = session.clone();
    offload::run(move || {
        let _compile_permit = compile_permit;
        let (code, args) = (&code[..], &args[..]);
        let operation = match &program {
            ProgramOperation::Create(options) => Operation::CreateProgram {
                options,
                code,
                args,
            },
            ProgramOperation::Replace(expected) => Operation::Replace {
                expected: *expected,
                code,
                args,
            },
        };
        let intention = Intention {
            client: session.client,
            nonce: session.nonce,
            expect: &expect,
            principal: &principal,
            fingerprint: session.fingerprint,
            ..Intention::new(&topic, operation)
        };
        let permit = shared.admit(std::slice::from_ref(&intention), intention.size_hint());
        let permit = permit.map_err(busy)?;
        let proposal = shared.store.propose(&[intention]);
        let proposal = proposal.map_err(|error| problems::of_store(&error))?;
        let mut queued = QueuedWrite::new(&shared.admission, proposal, permit);
        session.hold_in(&mut queued);
        Ok(queued.charged_to(&shared.security, &caller))
    })
    .await
}

/// The problem of a program for which there is no permit to compile.
fn compiles_others() -> Problem {
    busy(BudgetExhausted {
        text: "the server compiles programs of other requests",
        limit: COMPILES_MAX,
    })
}
