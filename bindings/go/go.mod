module weir.example/bindings/go

go 1.26.0
