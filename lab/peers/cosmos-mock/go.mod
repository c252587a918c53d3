module weir/lab/peers/cosmos-mock

go 1.26.0
