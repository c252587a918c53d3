// The suite as its authors mean it to be run, without an option changed.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

runConformanceTests({ baseUrl: process.env.WEIR_STREAMS })
