module applecart/e2e/scaleway

go 1.26.0

require github.com/scaleway/scaleway-sdk-go v1.0.0-beta.31

require gopkg.in/yaml.v2 v2.4.0 // indirect
