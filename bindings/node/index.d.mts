export * from './index.js'
import * as weir from './index.js'
export default weir
