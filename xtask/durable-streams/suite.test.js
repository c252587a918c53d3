// Runs the suite as its authors intend, with default options.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

runConformanceTests({ baseUrl: process.env.WEIR_STREAMS })
