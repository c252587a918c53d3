// The same package for `import`.

import weir from './index.js'

export const {
  ClientError, Group, InternalError, Item, Page, Pending, Query, QueryError, Record, RecordPage,
  RefusalError, Session, Source, Store, StoreError, Topic, TopicQuery, Verdict, VerdictError,
  WeirError, Work, alter, buildProfile, connect, create, del, destroy, expect, open, put,
  transaction, version,
} = weir
export default weir
